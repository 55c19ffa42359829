"""Delivers events to their receivers: clients, the subscribers of a call, and the webhook."""
