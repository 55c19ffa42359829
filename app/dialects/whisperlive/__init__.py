"""The protocol of WhisperLive's clients."""
