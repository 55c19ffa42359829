"""Trains a Whisper checkpoint for windows as long as their audio. Needs transformers, which no server imports."""
