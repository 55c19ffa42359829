"""OpenAI's protocols: files over HTTP, and Realtime."""
