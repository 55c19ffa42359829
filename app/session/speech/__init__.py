"""Finds speech, and decides where utterances and windows begin and end."""
