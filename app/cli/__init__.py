"""The command line, `tutti`: its commands, the processes that they start, and what they print."""
