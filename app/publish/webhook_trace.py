"""What the webhook tells of a delivery to whom follows it: its attempts and its outcome."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager


class DeliveryTrace:
    """Follows the delivery of one event. This one notes nothing."""

    headers: Mapping[str, str] = {}
    """Headers of the request, which name the trace to its receiver."""

    def attempted(self, answer: int | str) -> None:
        """Note an attempt: the status of the response, or what went wrong."""

    def ended(self, outcome: str) -> None:
        """Note how the delivery has ended."""


TraceDelivery = Callable[[str, float], AbstractContextManager[DeliveryTrace]]
"""Follows a delivery while the context is open. Takes the id of the call, and when the event was made, in seconds."""
