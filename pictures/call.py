"""A call for the picture of its record: a channel for each side, made of recordings of the tests."""

import base64
import io
import wave
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tutti_server.app.media.file_decoder import decode_pieces
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

SIDES = ("agent", "caller")
LENGTH_S = 36.0
AUDIO = Path(__file__).parents[1] / "tests" / "audio"
CALL, MEETING = AUDIO / "call.flac", AUDIO / "meeting.flac"


class Clip(NamedTuple):
    """What a side says, and when."""

    side: str
    at_s: float
    """Where it begins in the call, in seconds."""
    path: Path
    from_s: float
    until_s: float
    """The part of the file, in seconds."""


CLIPS = (
    Clip("agent", 0.6, CALL, 0.0, 2.3),
    Clip("caller", 3.4, CALL, 2.3, 12.1),
    Clip("agent", 17.4, MEETING, 15.6, 18.9),
    Clip("agent", 21.2, MEETING, 6.0, 11.5),
    # The caller asks again before the agent has finished.
    Clip("caller", 25.0, MEETING, 11.9, 15.1),
    Clip("agent", 29.2, MEETING, 15.6, 18.9),
    Clip("agent", 32.8, MEETING, 19.3, 22.2),
)


def call_in_base64() -> str:
    """The call as a WAV file with a channel for each side."""
    whole = np.zeros((round(LENGTH_S * SAMPLE_RATE), len(SIDES)), np.float32)
    for clip in CLIPS:
        part = _read(clip.path)[round(clip.from_s * SAMPLE_RATE) : round(clip.until_s * SAMPLE_RATE)]
        begin = round(clip.at_s * SAMPLE_RATE)
        whole[begin : begin + len(part), SIDES.index(clip.side)] += part
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(len(SIDES))
        writer.setsampwidth(2)
        writer.setframerate(SAMPLE_RATE)
        writer.writeframes((np.clip(whole, -1, 1) * 32767).astype("<i2").tobytes())
    return base64.b64encode(file.getvalue()).decode()


def _read(path: Path) -> Samples:
    with path.open("rb") as file:
        return np.concatenate(list(decode_pieces(file, None)))
