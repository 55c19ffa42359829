"""Whole recordings: clips with transcripts, engines and endpoints that transcribe them, scoring."""
