"""What `benchmarks.endpointing` is made of: speech with known pauses, what the engine says at each, and the count."""
