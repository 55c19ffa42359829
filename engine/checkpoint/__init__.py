"""Files of Hugging Face Whisper checkpoints: finding, reading and checking them. Needs no torch."""
