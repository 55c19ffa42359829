"""Asterisk's WebSocket channel: the audio of one channel of a call."""
