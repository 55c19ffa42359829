"""Live sessions against a server: `python -m benchmarks.live`, and what the other live benchmarks share."""
