"""The service: sockets, sessions, files. Knows nothing of tensors."""
