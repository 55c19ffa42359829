"""Trains the embedded checkpoint on synthetic English. Nothing in `app` or `engine` imports it."""
