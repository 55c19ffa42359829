"""What is decoded from a window, and what counts: prompts, rules, sampling, fallback, word times."""
