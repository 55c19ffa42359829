"""Calls of Telnyx, whose media streaming dials a WebSocket."""
