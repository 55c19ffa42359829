"""Whisper in plain PyTorch, its caches and its input."""
