"""Twilio's media streams: the audio of both sides of a telephone call."""
