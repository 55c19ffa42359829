"""Serves one live WebSocket: admission, reading, writing, time limits."""
