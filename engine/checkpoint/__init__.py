"""Finds, reads and checks the files of Whisper checkpoints in the Hugging Face layout. Needs no torch."""
