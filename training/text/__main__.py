"""Runs the command `python -m training.text`."""

from training.text.corpus import main

if __name__ == "__main__":
    main()
