"""The core: one client's session without I/O, counted in samples."""
