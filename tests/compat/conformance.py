"""Decorators that mark what a test shows about a documented option of a dialect.

`tests/compat/table.py` makes `docs/compatibility.md` from these marks. An option without a test is not on the page.
"""

from dataclasses import dataclass
from typing import Literal

import pytest

Level = Literal["supported", "approximated", "refused"]

DIALECTS = {
    "openai-rest": "OpenAI REST",
    "openai-realtime": "OpenAI Realtime",
    "deepgram-live": "Deepgram, live",
    "deepgram-flux": "Deepgram Flux",
    "deepgram-prerecorded": "Deepgram, prerecorded",
    "whisperlive": "WhisperLive",
    "twilio": "Twilio media streams",
    "asterisk": "Asterisk, WebSocket channel",
    "audiosocket": "Asterisk, AudioSocket",
    "audiohook": "Genesys AudioHook",
    "freeswitch": "FreeSWITCH audio streams",
    "vonage": "Vonage Voice API, WebSocket",
    "telnyx": "Telnyx media streaming",
    "plivo": "Plivo audio streaming",
    "jambonz": "jambonz, custom speech recognition",
}
"""The name of each dialect for the decorators, and its heading on the page, in the order of the page."""


@dataclass(frozen=True, order=True)
class Claim:
    """One line of the page."""

    dialect: str
    option: str
    level: Level
    how: str = ""


def supported(dialect: str, option: str, *, how: str = "") -> pytest.MarkDecorator:
    """The option does what its vendor documents, on the condition that `how` names, if there is one."""
    return _mark(Claim(dialect, option, "supported", how))


def approximated(dialect: str, option: str, *, how: str) -> pytest.MarkDecorator:
    """The option does something close to what its vendor documents."""
    return _mark(Claim(dialect, option, "approximated", how))


def refused(dialect: str, option: str, *, how: str) -> pytest.MarkDecorator:
    """The option has no effect, and an error, a warning or a header tells the client."""
    return _mark(Claim(dialect, option, "refused", how))


def _mark(claim: Claim) -> pytest.MarkDecorator:
    if claim.dialect not in DIALECTS:
        raise ValueError(f"dialect: expected one of {', '.join(DIALECTS)}, got {claim.dialect!r}")
    if not claim.option or (claim.level != "supported" and not claim.how):
        raise ValueError(f"expected the name of an option and how it is {claim.level}, got {claim}")
    return pytest.mark.option(claim)
