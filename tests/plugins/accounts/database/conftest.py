"""Databases of both kinds, empty."""

from tests.plugins.accounts.keys.conftest import database, postgres, url

__all__ = ["database", "postgres", "url"]
