"""The parts of `python -m benchmarks.chaos`: the service that is disturbed, the faults, and the comparison of texts."""
