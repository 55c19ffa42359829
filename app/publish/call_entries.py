"""What gateways share of a call: the entries of its log, its opening, and the names of both in the shared store."""

import hashlib
import json
from dataclasses import dataclass

from tutti_server.app.publish.outbox import CallId, CallMessage

MAX_CHARS = 16 << 20
"""A longer entry is none of ours: more than all words of the longest utterance, in every spelling of its protocol."""
MAX_NUMBER = 1 << 53
"""Messages and streams have smaller numbers. After one that is larger no other would ever be the next."""
KEEP_OPENING_S = 172_800.0
"""An opening ends after this time, in seconds: two days, longer than any call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEntry:
    """One message of a call, with its place among all of them."""

    call: str
    """The id of the stream that the call comes from. A call that goes on in another stream has another one."""
    begun: int
    """The number of that stream, by the order of the shared store: of two streams, the one with the higher one counts.

    No clock of a gateway says so, as those of two machines may differ by more than the pause between two streams.
    """
    number: int
    """The number of the message, from 0. A number that is missing is a message that was lost."""
    message: CallMessage | None
    """`None` at the end of the call."""

    def text(self) -> str:
        """Write the entry as JSON."""
        fields = {"call": self.call, "begun": self.begun, "number": self.number}
        if (message := self.message) is not None:
            fields |= {"texts": message.texts, "replaces": message.replaces, "is_opening": message.is_opening}
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> "CallEntry":
        """Read an entry from JSON. Raises one of `waiting.UNREADABLE` for what another version has written."""
        if len(text) > MAX_CHARS:
            raise ValueError(f"expected at most {MAX_CHARS} characters, got {len(text)}")
        fields = json.loads(text)
        message = None
        if "texts" in fields:
            message = CallMessage(tuple(fields["texts"]), fields["replaces"], fields["is_opening"])
            if not isinstance(fields["texts"], list) or not all(isinstance(each, str) for each in message.texts):
                raise TypeError("texts: expected a list of strings")
            if not isinstance(message.replaces, str | None) or not isinstance(message.is_opening, bool):
                raise TypeError("replaces, is_opening: expected a string or null, and a boolean")
        if not isinstance(fields["call"], str) or {type(fields["begun"]), type(fields["number"])} != {int}:
            raise TypeError("call, begun, number: expected a string and two whole numbers")
        if not all(0 <= each < MAX_NUMBER for each in (fields["begun"], fields["number"])):
            raise ValueError(f"begun, number: expected numbers from 0 to {MAX_NUMBER - 1}")
        return cls(call=fields["call"], begun=fields["begun"], number=fields["number"], message=message)


def log_name(call_id: CallId) -> str:
    """The log of a call."""
    return f"call:{_name(call_id)}"


def opening_name(call_id: CallId) -> str:
    """The value with the opening of a call: a list in JSON of the entries that every subscriber receives first."""
    return f"call-opening:{_name(call_id)}"


def lease_name(call_id: CallId) -> str:
    """The name of the lease that a stream holds while the call comes from it."""
    return f"call:{_name(call_id)}"


def newer_name(stream: str) -> str:
    """The name of the leases of streams that wait for this one to end."""
    return f"newer {stream}"


def _name(call_id: CallId) -> str:
    """What stands for a call in the shared store. All digests have one length, so that no two calls have one name."""
    return f"{hashlib.sha256(call_id.account.encode()).hexdigest()}:{call_id.sid}"
