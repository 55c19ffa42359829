"""Holds models of the audio, shared by all sessions of a process: speech detectors, turn models, and who speaks."""
