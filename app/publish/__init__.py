"""Brings events to those who follow them: the outbox, rooms of readers, subscribers of calls, the webhook."""
