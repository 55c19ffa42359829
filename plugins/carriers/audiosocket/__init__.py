"""Asterisk's AudioSocket: the audio of one channel of a call, over TCP."""
