"""Decides which windows are encoded when, and runs the loop of the engine's thread."""
