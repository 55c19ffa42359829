"""Twilio's media streams: both sides of a telephone call."""
