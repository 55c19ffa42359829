"""Events of a session for tests of wire formats, with defaults for what a test does not look at."""

from typing import Any

from tutti_server.app.session.messages import events
from tutti_server.engine import api

SOURCE = api.Segment(
    start_s=0.0, end_s=1.0, text="", tokens=(), avg_logprob=-0.6931, compression_ratio=1.0, no_speech_prob=0.0
)
"""A segment of the engine, with a confidence of a half."""


def interim(stable: str, tail: str = "", start_s: float = 0.0, end_s: float = 1.0, **more: Any) -> events.Interim:
    """Text of the first utterance that may still change."""
    defaults: dict[str, Any] = {"utterance": 0, "channel": 0}
    return events.Interim(stable=stable, tail=tail, start_s=start_s, end_s=end_s, **defaults | more)


def segment(text: str, start_s: float, end_s: float, **more: Any) -> events.Segment:
    """A segment in English of the first utterance."""
    defaults: dict[str, Any] = {"utterance": 0, "id": 0, "channel": 0, "language": "en", "source": SOURCE}
    return events.Segment(text=text, start_s=start_s, end_s=end_s, **defaults | {"window_start_s": start_s} | more)


def utterance(text: str, start_s: float, end_s: float, until_s: float | None = None, **more: Any) -> events.Utterance:
    """The end of the first utterance, from whose end a client resumes unless `until_s` says otherwise."""
    until_s = end_s if until_s is None else until_s
    defaults: dict[str, Any] = {"utterance": 0, "channel": 0, "uncovered": (), "final_until_s": until_s}
    return events.Utterance(text=text, start_s=start_s, end_s=end_s, **defaults | {"resume_from_s": (until_s,)} | more)
