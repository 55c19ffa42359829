"""Places the audio of a session on the timeline of its AudioHook stream, which goes on while audio is left out."""

import re
from bisect import bisect_left, bisect_right

from tutti_server.app.errors import CLOSE_POLICY, BadMessage, LimitExceeded

MAX_GAPS = 10_000
"""The most gaps of one stream. This bounds what a session holds."""
_DURATION = re.compile(r"PT(\d{1,9}(?:\.\d{1,9})?)S", re.ASCII)


def read_duration(name: str, value: object) -> float:
    """A duration in seconds, written as `PT1.5S`.

    Raises:
        BadMessage: it is written otherwise.
    """
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise BadMessage("bad_message", f"a duration such as PT1.5S as {name}", value)
    return float(found[1])


def write_duration(seconds: float) -> str:
    """A duration as `PT1.5S`, with up to milliseconds."""
    text = f"{max(seconds, 0.0):.3f}".rstrip("0").rstrip(".")
    return f"PT{text}S"


class Timeline:
    """Converts times of a session, which counts the audio that came, to times of the stream."""

    def __init__(self) -> None:
        self._session_s = [0.0]
        """Times of the session at which gaps end, the oldest first."""
        self._stream_s = [0.0]
        """The moments of `_session_s` on the timeline of the stream."""

    def skip(self, session_s: float, stream_s: float) -> None:
        """Audio was left out: what comes after `session_s` seconds of audio is at `stream_s` or later on the stream.

        Raises:
            LimitExceeded: there are too many gaps.
        """
        if len(self._session_s) > MAX_GAPS:
            raise LimitExceeded("too_many_gaps", f"discarded: expected at most {MAX_GAPS} gaps", CLOSE_POLICY)
        # The stream's timeline never runs backwards, whatever a client says.
        stream_s = max(stream_s, self.at(session_s))
        self._session_s.append(session_s)
        self._stream_s.append(stream_s)

    def at(self, session_s: float, *, is_end: bool = False) -> float:
        """The time on the stream's timeline, in seconds.

        Args:
            is_end: whether something ends there. Where a gap is, it ends before it, and what begins there begins after.
        """
        index = (bisect_left if is_end else bisect_right)(self._session_s, session_s) - 1
        return self._stream_s[max(index, 0)] + session_s - self._session_s[max(index, 0)]
