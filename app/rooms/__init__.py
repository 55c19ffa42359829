"""Rooms: the text of a live session, for readers without a microphone."""
