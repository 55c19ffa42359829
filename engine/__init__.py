"""Whisper inference: features, model, caches, batching, decoding rules, the thread that runs them. No sockets."""

import os

# OpenMP threads wait for each other by spinning for milliseconds, which starves them where cores are shared: with two
# threads on two busy cores a decode step took 20 to 100 ms instead of 5. Two thousand turns cost 8 % on idle cores.
# Read when PyTorch loads, so it stands before anything that imports it.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")
