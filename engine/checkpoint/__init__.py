"""Finds, reads and checks the files of Whisper checkpoints, with a reader for each format. Needs no torch."""
