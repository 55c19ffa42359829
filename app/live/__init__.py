"""One live WebSocket: how it is accepted, read, written and closed."""
