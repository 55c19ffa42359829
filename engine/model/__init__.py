"""Whisper in plain PyTorch, with its caches, its input features and its weights."""
