"""Calls of the Vonage Voice API, which dials a WebSocket."""
