"""Genesys AudioHook: the audio of both sides of a conversation, and its text as events."""
