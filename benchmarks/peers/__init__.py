"""Other transcription engines and servers: how they are started, and clients of their protocols."""
