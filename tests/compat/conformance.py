"""What a test shows of a documented option of a dialect, said by a decorator on the test.

`tests/compat/table.py` makes `docs/compatibility.md` of these marks. An option without a test is not in the table.
"""

from dataclasses import dataclass
from typing import Literal

import pytest

Level = Literal["supported", "approximated", "refused"]

DIALECTS = {
    "openai-rest": "OpenAI REST",
    "openai-realtime": "OpenAI Realtime",
    "deepgram-live": "Deepgram, live",
    "deepgram-prerecorded": "Deepgram, prerecorded",
    "whisperlive": "WhisperLive",
    "twilio": "Twilio media streams",
}
"""Names for the decorators, and headings of the table, in its order."""


@dataclass(frozen=True, order=True)
class Claim:
    """One row of the table."""

    dialect: str
    option: str
    level: Level
    how: str = ""


def supported(dialect: str, option: str) -> pytest.MarkDecorator:
    """The option does what its vendor documents."""
    return _mark(Claim(dialect, option, "supported"))


def approximated(dialect: str, option: str, *, how: str) -> pytest.MarkDecorator:
    """The option is taken, and does something close to what its vendor documents."""
    return _mark(Claim(dialect, option, "approximated", how))


def refused(dialect: str, option: str, *, how: str) -> pytest.MarkDecorator:
    """The option has no effect, which the client is told: by an error, a warning or a header."""
    return _mark(Claim(dialect, option, "refused", how))


def _mark(claim: Claim) -> pytest.MarkDecorator:
    if claim.dialect not in DIALECTS:
        raise ValueError(f"dialect: expected one of {', '.join(DIALECTS)}, got {claim.dialect!r}")
    if not claim.option or (claim.level != "supported" and not claim.how):
        raise ValueError(f"expected the name of an option and how it is {claim.level}, got {claim}")
    return pytest.mark.option(claim)
