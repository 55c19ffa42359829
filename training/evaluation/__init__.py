"""The parts of `python -m training.evaluate`: clips, what decodes them, and what is measured."""
