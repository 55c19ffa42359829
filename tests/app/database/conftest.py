"""Databases of both kinds, empty."""

from tests.app.customers.conftest import database, postgres, url

__all__ = ["database", "postgres", "url"]
