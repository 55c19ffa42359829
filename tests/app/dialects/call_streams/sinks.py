"""A call sink that remembers what is published."""

from dataclasses import dataclass, field

from tutti_server.app.dialects.call_streams.wire import Call
from tutti_server.app.session.messages import events


@dataclass
class FakeSink:
    """Accepts every call."""

    calls: list[Call] = field(default_factory=list)
    published: list[events.Event | events.Reply] = field(default_factory=list)

    def begin(self, call: Call) -> None:
        self.calls.append(call)

    def publish(self, event: events.Event | events.Reply) -> None:
        self.published.append(event)

    @property
    def texts(self) -> list[str]:
        """The messages that are no events of the session."""
        return [each.text for each in self.published if isinstance(each, events.Reply)]
