"""Whole recordings: uploads, their transcription, transcripts and subtitles."""
