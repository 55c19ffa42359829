"""Who speaks: embeddings of stretches of speech, and their clusters."""
