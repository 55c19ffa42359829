"""Live sessions against a server: the command `python -m benchmarks.live`, and parts that other live benchmarks use."""
