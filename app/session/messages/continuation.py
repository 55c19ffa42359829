"""Where a session begins: at its first sample, or where it continues a session that its client has lost.

Checks the times of the client, and turns them into positions.
"""

from dataclasses import dataclass
from typing import TypeVar

from tutti_server.app.errors import BadStart
from tutti_server.app.session.messages.commands import Resume, Untranslated
from tutti_server.engine.api import SAMPLE_RATE, WINDOW_S

_Given = TypeVar("_Given")

ROUNDING_S = 0.01
"""By how many seconds a time may differ from another that is the same: both are rounded."""


@dataclass(frozen=True, slots=True)
class ChannelStart:
    """Where a channel begins. Positions are in samples since the first one that the client sends."""

    done_until: int = 0
    """Audio before this position has its final text already."""
    detector_from: int | None = 0
    """Audio before this position does not reach the detector. `None`: all audio does, and this is not what the
    detector of the lost session began with.
    """
    language: str | None = None
    """The language of the channel in the lost session; `None` if it was not detected."""
    prompt: str = ""
    """The text before it, which the model is shown for its first utterance."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where a session begins."""

    from_s: float
    """The time of the first sample that the client sends, in seconds."""
    channels: tuple[ChannelStart, ...]
    untranslated: tuple[Untranslated, ...] = ()
    """Text of the lost session that is still to be translated."""

    @property
    def resumed_at_s(self) -> float:
        """The time before which no channel gets text in this session, in seconds."""
        return self.from_s + min(channel.done_until for channel in self.channels) / SAMPLE_RATE


def find_start(resume: Resume | None, n_channels: int, translate: tuple[str, ...] = ()) -> Continuation:
    """Where a session with these channels begins.

    Raises:
        BadStart: the client's times do not fit together.
    """
    if resume is None:
        return Continuation(0.0, (ChannelStart(),) * n_channels)
    from_s = _one_each("from_s", resume.from_s, n_channels, "a number", "one")
    first_s = _audio_from_s(resume, min(from_s))
    done_until = [round((time_s - first_s) * SAMPLE_RATE) for time_s in from_s]
    detector_from = _detector_from(resume, first_s, done_until)
    languages = _one_each("language", resume.language or (None,), n_channels, "a language code", "one or null")
    for each in resume.untranslated:
        _check_untranslated(each, from_s, translate)
    earlier = tuple(sorted(resume.untranslated, key=lambda each: each.start_s))
    channels = zip(done_until, detector_from, languages, strict=True)
    return Continuation(first_s, tuple(ChannelStart(*channel, resume.prompt) for channel in channels), earlier)


def _check_untranslated(earlier: Untranslated, from_s: tuple[float, ...], translate: tuple[str, ...]) -> None:
    name = "resume.untranslated"
    if earlier.channel >= len(from_s):
        raise BadStart(f"{name}.channel", f"an integer from 0 to {len(from_s) - 1}", earlier.channel)
    if not earlier.start_s < earlier.end_s <= earlier.start_s + WINDOW_S:
        expected = f"at most {WINDOW_S} s more than start_s, {earlier.start_s:g}"
        raise BadStart(f"{name}.end_s", expected, earlier.end_s)
    if earlier.end_s > from_s[earlier.channel] + ROUNDING_S:
        raise BadStart(f"{name}.end_s", f"at most from_s, {from_s[earlier.channel]:g}", earlier.end_s)
    for language in earlier.targets:
        if language not in translate:
            raise BadStart(f"{name}.targets", "languages of translate", language)


def _one_each(name: str, given: tuple[_Given, ...], n_channels: int, one: str, each: str) -> tuple[_Given, ...]:
    """What was given for all channels, or for each of them, for each channel."""
    if len(given) not in (1, n_channels):
        raise BadStart(f"resume.{name}", f"{one}, or a list of {n_channels}, {each} for each channel", list(given))
    return given * n_channels if len(given) == 1 else given


def _audio_from_s(resume: Resume, from_s: float) -> float:
    """The time of the first sample, which is not after `from_s`."""
    if resume.audio_from_s is None:
        return from_s
    if resume.audio_from_s > from_s:
        raise BadStart("resume.audio_from_s", f"at most the least of resume.from_s, {from_s:g}", resume.audio_from_s)
    return resume.audio_from_s


def _detector_from(resume: Resume, first_s: float, done_until: list[int]) -> list[int | None]:
    """The positions of `Resume.detector_from_s`, each between the first sample and what has its final text."""
    times_s = resume.detector_from_s or (None,) * len(done_until)
    if len(times_s) != len(done_until):
        raise BadStart("resume.detector_from_s", f"a list of {len(done_until)}, one for each channel", list(times_s))
    positions = [None if time_s is None else round((time_s - first_s) * SAMPLE_RATE) for time_s in times_s]
    for position, done, time_s in zip(positions, done_until, times_s, strict=True):
        if position is not None and not 0 <= position <= done:
            expected = (
                f"null, or seconds from the first sample, {first_s:g}, to from_s, {first_s + done / SAMPLE_RATE:g}"
            )
            raise BadStart("resume.detector_from_s", expected, time_s)
    return positions
