"""Whisper inference: features, model, caches, batching, decoding rules, and the thread that runs them. No sockets."""
