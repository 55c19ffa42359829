"""What `python -m training.evaluate` measures."""
