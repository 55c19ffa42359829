"""Runs the command `python -m training.speech`."""

from training.speech.production import main

if __name__ == "__main__":
    main()
