"""Translations of final text by a chat endpoint of the operator."""
