"""A speaker and many readers of a room, as load for a server."""
