"""Turns the model's output into text: prompts, rules, sampling, fallback, transcripts, word times."""
