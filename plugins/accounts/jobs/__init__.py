"""Recordings that are sent in and answered later: they wait in the database, and are done once."""
