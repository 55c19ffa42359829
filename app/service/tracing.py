"""What the service asks of traces, and what it does without them."""

from collections.abc import MutableMapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from tutti_server.app.publish.webhook_trace import DeliveryTrace
from tutti_server.app.session.engine_driver import SessionTrace

Attribute = str | int | float | bool
"""The value of an attribute: a number, or a stable code. Text of speech and keys of clients never become one."""


class Trace(SessionTrace, Protocol):
    """Follows one live session or one upload."""

    def note(self, **attributes: Attribute) -> None:
        """Add attributes that are known at the end. The names get the prefix `tutti.`."""
        ...


class Tracing:
    """Follows requests. What is done in a context, and in tasks that are made there, belongs to its trace.

    This class follows nothing.
    """

    def session(
        self, scope: MutableMapping[str, Any], request: str, session: str, model: str
    ) -> AbstractContextManager[Trace | None]:
        """Follow a live session while the context is open.

        Args:
            scope: the ASGI scope of its WebSocket. A `traceparent` among the headers names the client's own trace.

        Returns:
            A context that gives the trace, or `None` where this one is not recorded.
        """
        return nullcontext()

    def upload(self, scope: MutableMapping[str, Any], request: str, model: str) -> AbstractContextManager[Trace | None]:
        """Follow the transcription of an uploaded file; see `session`."""
        return nullcontext()

    def delivery(self, call_sid: str, created_s: float) -> AbstractContextManager[DeliveryTrace]:
        """Follow the delivery to the webhook of one event, made at `created_s` since 1970."""
        return nullcontext(DeliveryTrace())
