"""What a client should know beyond its text: audio that was lost, and choices that were made for it."""

import json
from collections.abc import Callable
from dataclasses import dataclass

MISSING_SHARE = 0.05
"""A file is cut off if more than this share of the length that it states for its audio is missing.

Smaller differences are normal: containers round their length or estimate it.
"""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the client should know and that changes nothing, such as an option that is ignored."""

    code: str
    """Stable, for programs."""
    message: str
    """A sentence, for people."""
    lost: tuple[float, float] | None = None
    """A stretch of audio that cannot be heard: start and end in seconds."""


OnNotice = Callable[[Notice], None]
"""Receives each notice when it is known."""


def lost_audio(start_s: float, end_s: float) -> Notice:
    """The notice of a stretch that is damaged. Silence takes its place."""
    start_s, end_s = round(start_s, 3), round(end_s, 3)
    message = (
        f"file: expected whole audio, got damaged data from {start_s:.2f} to {end_s:.2f} s; silence is in its place"
    )
    return Notice("lost_audio", message, (start_s, end_s))


def is_cut_off(end_s: float, stated_s: float) -> bool:
    """Whether the audio of a file is so much shorter than the file states that its client is told."""
    return end_s < stated_s * (1 - MISSING_SHARE)


def cut_off(end_s: float, stated_s: float) -> Notice:
    """The notice of a file that ends before it should."""
    message = f"file: expected {stated_s:.2f} s of audio, as it states, got {end_s:.2f} s; is it cut off?"
    return Notice("cut_off", message)


def after_end() -> Notice:
    """The notice of bytes that follow a container which has ended, as its header says. They are not read."""
    return Notice(
        "after_end", "file: expected nothing after its end, got more bytes; what they hold is not transcribed"
    )


def drop(notice: Notice) -> None:
    """Receive a notice for a caller that has no use for it."""


def read_notice(content: bytes | bytearray) -> Notice:
    """A notice from the JSON of its fields."""
    fields = json.loads(content)
    lost = fields["lost"]
    return Notice(fields["code"], fields["message"], lost and (lost[0], lost[1]))
