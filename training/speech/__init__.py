"""The speech to train on: `python -m training.speech`."""
