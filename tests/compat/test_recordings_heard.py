"""The small model hears recordings of several containers and faults, at the times of their clocks."""

import io
from contextlib import aclosing

import numpy as np
import pytest

from tests.engine.engines import read_clip
from tests.made_files import Track, made_file
from tests.small_model import SMALL_MODEL
from tutti_server.app.files.transcript import Transcript
from tutti_server.app.files.transcription import transcribe
from tutti_server.app.files.transcription_options import TranscriptionOptions
from tutti_server.app.media.file_decoder import decode_file
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

HELLO = "Hello everyone, and welcome to the morning meeting."
TRAIN = "The next train to the city leaves from platform seven at a quarter past nine."
PAUSE_S = 3.0


KINDS = [
    ("webm", "libopus", 48_000, 0.0, 15.0),
    ("matroska", "aac", 44_100, 4.9, 0.0),
]
"""Containers, codecs and rates, when the track begins, and how long its recorder pauses between the sentences."""


async def test_text_and_times_are_right() -> None:
    """Two sentences, each where it is spoken, by its segment and its first word."""
    hello, train = read_clip("hello"), read_clip("train")
    samples = np.concatenate((hello, np.zeros(round(PAUSE_S * 16_000), np.float32), train))
    async with Engine.start(EngineConfig(model=SMALL_MODEL, n_threads=1)) as engine:
        for container, codec, rate, late_s, gap_s in KINDS:
            track = Track(samples=samples, offset_s=late_s, gap=(len(hello) / 16_000 + 1, gap_s))
            found = await heard(engine, made_file(container, codec, rate, [track]))
            expected_s = [late_s, late_s + len(hello) / 16_000 + PAUSE_S + gap_s]
            assert [segment.text.strip() for segment in found.segments] == [HELLO, TRAIN], container
            assert [segment.start_s for segment in found.segments] == pytest.approx(expected_s, abs=0.35)
            assert [segment.words[0].start_s for segment in found.segments] == pytest.approx(expected_s, abs=0.3)
            assert found.notices == []


async def heard(engine: Engine, content: bytes) -> Transcript:
    """The transcript of a file."""
    transcript = Transcript()
    options = TranscriptionOptions(language="en", words=True, beam_size=1)
    async with aclosing(decode_file(io.BytesIO(content), None, transcript.add)) as audio:
        await transcribe(engine, audio, transcript.add, session_id="s", config=SessionConfig(), options=options)
    return transcript
