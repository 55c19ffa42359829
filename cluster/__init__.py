"""Runs the engine outside the process that serves clients: today, in another process of the same host (`local`)."""
