"""What a client says and what a session answers: commands, events, states."""
