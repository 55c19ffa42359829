"""Whisper inference in batches: features, model, caches, batching, decoding. Knows nothing of sockets or sessions."""

import os

# OpenMP's idle threads spin by default and fight the event loop, or any other process, for the cores: with one of two cores
# taken, decoding was ten times slower than with threads that sleep. It is read once, when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
