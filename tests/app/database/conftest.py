"""Databases of both kinds, empty."""

from tests.app.customers.conftest import postgres, url

__all__ = ["postgres", "url"]
