"""Calls of Plivo, whose audio streaming dials a WebSocket."""
