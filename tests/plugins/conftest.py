"""The same servers as in `tests/app`, with the plug-ins that are installed."""

from tests.app.conftest import brief_pauses, serve

__all__ = ["brief_pauses", "serve"]
