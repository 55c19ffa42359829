"""Deepgram's protocol, live and for recordings."""
