"""Transcribes whole recordings: uploads, transcripts and subtitles."""
