"""What the parts of a channel share: windows, options, the port of the session."""
