"""The part of the native protocol about who speaks: names of channels, and the speakers of one channel."""

from collections.abc import Sequence
from typing import Any

from tutti_server.app.dialects.checks import integer_from
from tutti_server.app.dialects.limits import MAX_SPEAKERS
from tutti_server.app.dialects.speaker_names import letters
from tutti_server.app.errors import BadStart
from tutti_server.app.session.messages import events

MAX_NAME_CHARS = 64
MAX_VOICES_CHARS = 20_000
"""The longest `resume.voices`: that of more speakers than there may be."""


def parse_max(fields: Any) -> int | None:
    """The most speakers that the client wants to be told apart; `None` if it wants none to be.

    Args:
        fields: the fields of `start`.

    Raises:
        BadStart: the value is wrong.
    """
    if fields.pop_null("speakers"):
        return None
    expected = f"an integer from 1 to {MAX_SPEAKERS}"
    most: int = fields.nested("speakers").pop("max", expected, integer_from(1, MAX_SPEAKERS), MAX_SPEAKERS)
    return most


def parse_channel_names(fields: Any, n_channels: int) -> tuple[str, ...]:
    """The names of the channels; none if the client has named none.

    Args:
        fields: the fields of `start`.
        n_channels: how many there are.

    Raises:
        BadStart: the value is wrong.
    """
    expected = f"a list of {n_channels}, one for each channel: texts of 1 to {MAX_NAME_CHARS} characters that differ"
    names: list[str] = fields.pop("channel_names", expected, lambda value: _are_names(value, n_channels), [])
    return tuple(names)


def require_one_kind(max_speakers: int | None, channel_names: Sequence[str]) -> None:
    """Refuse the speakers of a channel that has a name, which is its speaker's.

    Raises:
        BadStart: both are wanted.
    """
    if max_speakers is not None and channel_names:
        raise BadStart("channel_names", "none with speakers", list(channel_names))


def parse_voices(fields: Any) -> str:
    """What the client sends back of an utterance of the lost session; empty if it does not."""
    expected = f"text of at most {MAX_VOICES_CHARS} characters"
    voices: str = fields.pop("voices", expected, _is_voices, "")
    return voices


def named(message: dict[str, Any], channel_names: Sequence[str]) -> dict[str, Any]:
    """A message about a channel, with the channel's name as its speaker."""
    return message | {"speaker": channel_names[message["channel"]]} if channel_names else message


def changed(event: events.Speakers) -> dict[str, Any]:
    """The message about who speaks when."""
    spans = [{"from_s": each.from_s, "until_s": each.until_s, "speaker": letters(each.speaker)} for each in event.spans]
    return {"type": "speakers", "channel": event.channel, "spans": spans}


def speaker(number: int | None) -> dict[str, str]:
    """The field of a speaker; none where nothing is known, and where the client did not ask."""
    return {} if number is None else {"speaker": letters(number)}


def _are_names(value: object, n_channels: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == n_channels
        and all(isinstance(each, str) and 0 < len(each) <= MAX_NAME_CHARS for each in value)
        and len(set(value)) == n_channels
    )


def _is_voices(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_VOICES_CHARS
