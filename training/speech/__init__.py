"""Makes the speech to train on: `python -m training.speech`."""
