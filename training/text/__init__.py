"""Makes the sentences to train on: `python -m training.text`."""
