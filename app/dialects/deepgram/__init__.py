"""Deepgram's protocol, for live audio and for recordings."""
