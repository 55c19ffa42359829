"""Asks the engine for interims, finals and translations, and sends what it answers."""
