"""Whole recordings: clips with transcripts, the engines and endpoints that transcribe them, and a word normaliser."""
