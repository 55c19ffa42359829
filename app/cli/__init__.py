"""The command line, `tutti`."""
