"""Which windows are encoded and decoded when: the engine's thread, its batcher, its counters."""
