"""What `benchmarks.endpointing` is made of: what the engine says at each pause, the count, and the fit."""
