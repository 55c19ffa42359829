"""A recording of several turns: the small model hears every word of it, live and as a file."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing

import numpy as np
import pytest

from tests.recordings import MEETING, SENTENCES
from tests.small_model import N_BEAMS, SMALL_MODEL
from tutti_server.app.cli.demo import CHUNK_MS
from tutti_server.app.files.transcription import transcribe
from tutti_server.app.media.file_decoder import decode_file
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.core.effects import Effect, Send, Submit
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.session import Session
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

CHUNK_SAMPLES = SAMPLE_RATE * CHUNK_MS // 1000


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """The small model. Two threads would wait for each other on a busy machine."""
    async with Engine.start(EngineConfig(model=SMALL_MODEL, n_threads=1)) as engine:
        yield engine


async def read_meeting() -> Samples:
    with MEETING.open("rb") as file:
        async with aclosing(decode_file(file)) as pieces:
            return np.concatenate([piece async for piece in pieces])


async def listen(
    engine: Engine, chunks: list[bytes], start: commands.Start, config: SessionConfig
) -> list[events.Event]:
    """The events of a session whose engine answers each window before more audio arrives.

    So every interim is decoded, and its stable words are forced on what follows, as at the pace of speech.
    """
    session = Session("s_meeting", engine.info, config)
    received: list[events.Event] = []
    script: list[commands.Command] = [start, *map(commands.Audio, chunks), commands.Stop()]
    for command in script:
        effects = deque[Effect](session.receive(command))
        while effects:
            match effects.popleft():
                case Send(event):
                    received.append(event)
                case Submit(job, window):
                    async with engine.submit(window) as engine_events:
                        async for engine_event in engine_events:
                            effects.extend(session.engine_event(job, engine_event))
    return received


def sentences(received: list[events.Event]) -> list[str]:
    return [event.text.strip() for event in received if isinstance(event, events.Segment)]


@pytest.mark.parametrize("mode", ["vad", pytest.param("adaptive", marks=pytest.mark.nightly)])
async def test_every_word_is_heard_live(engine: Engine, mode: commands.EndpointingMode) -> None:
    """With interims, in the chunks of `tutti demo`; punctuation too. Its mode is adaptive with the small model."""
    pcm = (await read_meeting() * 32767).astype("<i2")
    chunks = [pcm[at : at + CHUNK_SAMPLES].tobytes() for at in range(0, len(pcm), CHUNK_SAMPLES)]
    start = commands.Start(language="en", endpointing=commands.Endpointing(mode=None))
    received = await listen(engine, chunks, start, SessionConfig(beam_size=N_BEAMS, speculates=mode == "adaptive"))
    assert sentences(received) == SENTENCES
    assert sum(isinstance(event, events.Interim) for event in received) > 30


async def test_every_word_is_heard_in_a_file(engine: Engine) -> None:
    """As `tutti transcribe` decodes it."""
    samples = await read_meeting()

    async def audio() -> AsyncIterator[Samples]:
        yield samples

    received: list[events.Event] = []
    await transcribe(engine, audio(), received.append, session_id="file", config=SessionConfig(beam_size=N_BEAMS))
    assert sentences(received) == SENTENCES
