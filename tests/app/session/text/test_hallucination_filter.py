"""Sounds for which a recogniser makes up words: noise, music, hum, and a syllable that is repeated.

The tests run sessions on the small model, most of them live with interims. The engine answers before more audio
arrives, so that every run is the same.
"""

import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest
import pytest_asyncio

from tests.small_model import N_BEAMS, SMALL_MODEL
from tutti_server.app.files.transcription import transcribe
from tutti_server.app.files.transcription_options import TranscriptionOptions
from tutti_server.app.media.pcm import AudioFormat, Samples
from tutti_server.app.session.core.effects import Effect, Send, Submit
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.session import Session
from tutti_server.app.session.speech.coverage import MIN_UNCOVERED_SAMPLES
from tutti_server.app.session.speech.endpointing import (
    FRAME_SAMPLES,
    Endpointer,
    SpeechBegan,
    SpeechEnded,
    WebRtcDetector,
)
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUDIO = Path(__file__).parents[3] / "audio"
CHUNK_SAMPLES = SAMPLE_RATE // 5
SPANS_SILENCE_MS = 300
INTERIM_MS = 2000
MAX_LETTERS_PER_S = 30
SLACK_S = 0.3
"""The session's detector and that of a test may disagree by this many seconds, because they start at other places."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[Engine]:
    async with Engine.start(EngineConfig(model=SMALL_MODEL)) as engine:
        yield engine


def read(name: str, start_s: float = 0.0, end_s: float | None = None) -> Samples:
    """A recording of `tests/audio`, or a piece of it with soft edges."""
    with av.open(AUDIO / f"{name}.flac") as container:
        pcm = np.concatenate([frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)])
    end = end_s and round(end_s * SAMPLE_RATE)
    samples: Samples = pcm[round(start_s * SAMPLE_RATE) : end].astype(np.float32) / np.float32(32768)
    edge = np.linspace(0, 1, 80, dtype=np.float32)
    samples[:80] *= edge
    samples[-80:] *= edge[::-1]
    return samples


def repeated(samples: Samples, times: int) -> Samples:
    return np.tile(samples, times)


def tone(pitch_hz: float, length_s: float, n_harmonics: int) -> Samples:
    """Harmonics that fall off."""
    t = np.arange(round(length_s * SAMPLE_RATE)) / SAMPLE_RATE
    wave = np.zeros_like(t)
    for harmonic in range(1, n_harmonics + 1):
        wave += harmonic**-0.7 * np.sin(2 * np.pi * pitch_hz * harmonic * t + harmonic**2)
    samples: Samples = (0.4 * wave / np.abs(wave).max()).astype(np.float32)
    return samples


def melody(length_s: float) -> Samples:
    """Hold music: the same tune over and over."""
    tune = (0, 4, 7, 12, 7, 4, 5, 9, 12, 9, 5, 2, 7, 11, 14, 11)
    notes = [tone(220 * 2 ** (step / 12), 0.3, 8) * np.exp(-np.arange(4800) / 3000).astype(np.float32) for step in tune]
    return np.tile(np.concatenate(notes), round(length_s / 4.8))


def noise(n_samples: int) -> Samples:
    """Brown enough to sound like traffic."""
    white = np.random.default_rng(4).normal(size=n_samples)
    spectrum = np.fft.rfft(white) / np.sqrt(np.linspace(0.01, 1, n_samples // 2 + 1))
    samples = np.fft.irfft(spectrum, n_samples)
    scaled: Samples = (samples / samples.std()).astype(np.float32)
    return scaled


def mixed(speech: Samples, sound: Samples, snr_db: float) -> Samples:
    scale = speech.std() / sound.std() * 10 ** (-snr_db / 20)
    samples = speech + sound[: len(speech)] * scale
    scaled: Samples = samples / np.abs(samples).max() * 0.9
    return scaled


async def live(engine: Engine, samples: Samples) -> list[events.Event]:
    """The events of a live session with interims."""
    session = Session("live", engine.info, SessionConfig(beam_size=N_BEAMS, interim_interval_ms=INTERIM_MS))
    sent: list[events.Event] = []

    async def perform(effects: list[Effect]) -> None:
        waiting = deque(effects)
        while waiting:
            match waiting.popleft():
                case Send(event):
                    sent.append(event)
                case Submit(job, window):
                    async with engine.submit(window) as answers:
                        async for answer in answers:
                            waiting += session.engine_event(job, answer)

    await perform(session.receive(commands.Start(audio=AudioFormat("pcm_f32le"), language="en")))
    for start in range(0, len(samples), CHUNK_SAMPLES):
        await perform(session.receive(commands.Audio(samples[start : start + CHUNK_SAMPLES].tobytes())))
    await perform(session.receive(commands.Stop()))
    return sent


async def as_file(engine: Engine, samples: Samples) -> list[events.Event]:
    async def audio() -> AsyncIterator[Samples]:
        yield samples

    sent: list[events.Event] = []
    options = TranscriptionOptions(language="en")
    await transcribe(
        engine, audio(), sent.append, session_id="file", config=SessionConfig(beam_size=N_BEAMS), options=options
    )
    return sent


Listen = Callable[[Engine, Samples], Awaitable[list[events.Event]]]


def text(sent: list[events.Event]) -> str:
    return " ".join(event.text for event in sent if isinstance(event, events.Utterance) and event.text)


def longest_row(said: str) -> tuple[int, str]:
    """How often the most repeated phrase comes in a row, and the phrase."""
    words = re.findall(r"\w+", said.casefold())
    best = (1, "")
    for length in range(1, len(words) // 2 + 1):
        n_same = 0
        for at, (word, later) in enumerate(zip(words, words[length:], strict=False)):
            n_same = n_same + 1 if word == later else 0
            n_rounds = n_same // length + 1
            if n_rounds > best[0]:
                best = (n_rounds, " ".join(words[at + 1 : at + 1 + length]))
    return best


def detected_speech(samples: Samples) -> list[tuple[float, float]]:
    """The speech that a detector finds, in seconds."""
    endpointer, spans, began_s = Endpointer(WebRtcDetector(), SPANS_SILENCE_MS), [], 0.0
    for _, change in endpointer.push(samples[: len(samples) // FRAME_SAMPLES * FRAME_SAMPLES]):
        match change:
            case SpeechBegan(at):
                began_s = at / SAMPLE_RATE
            case SpeechEnded(at):
                spans.append((began_s, at / SAMPLE_RATE))
    if endpointer.is_speaking:
        spans.append((began_s, endpointer.speech_until / SAMPLE_RATE))
    return spans


def vanished(samples: Samples, sent: list[events.Event]) -> list[tuple[float, float]]:
    """Detected speech that has no text and is not reported, in seconds."""
    known = [(event.start_s, event.end_s) for event in sent if isinstance(event, events.Segment)]
    known += [span for event in sent if isinstance(event, events.Utterance) for span in event.uncovered]
    gaps = pairwise([(0.0, 0.0), *sorted(known), (1e9, 1e9)])
    silent, until_s = [], 0.0
    for (_, end_s), (start_s, _) in gaps:
        until_s = max(until_s, end_s)
        silent.append((until_s, start_s))
    lost = [(max(a, begin), min(b, end)) for begin, end in detected_speech(samples) for a, b in silent]
    # Pauses inside what is one stretch here are no speech to the session.
    return [(a, b) for a, b in lost if b - a > MIN_UNCOVERED_SAMPLES / SAMPLE_RATE + SLACK_S + SPANS_SILENCE_MS / 1000]


@pytest.mark.parametrize(
    ("listen", "sound"),
    [
        pytest.param(live, tone(50, 12, 24), id="hum"),
        pytest.param(as_file, tone(50, 12, 24), id="hum in a file"),
        pytest.param(live, melody(10), id="hold music"),
        pytest.param(live, noise(10 * SAMPLE_RATE) * 0.1, id="traffic"),
    ],
)
async def test_sounds_have_no_words(engine: Engine, listen: Listen, sound: Samples) -> None:
    """Neither a final nor an interim has text, and what the detector takes for speech is reported."""
    sent = await listen(engine, sound)
    assert text(sent) == ""
    assert not [event for event in sent if isinstance(event, events.Interim)]
    assert not vanished(sound, sent)


async def test_a_repeated_syllable_gives_no_endless_text(engine: Engine) -> None:
    """No phrase comes more often than it was spoken, and speech that the text cannot stand for is reported."""
    times = 20
    samples = repeated(read("call", 0.4, 0.9), times)
    sent = await live(engine, samples)
    said = text(sent)
    assert longest_row(said)[0] <= times
    assert sum(map(str.isalnum, said)) < MAX_LETTERS_PER_S * len(samples) / SAMPLE_RATE
    assert not vanished(samples, sent)
    covered_s = sum(event.end_s - event.start_s for event in sent if isinstance(event, events.Segment))
    # As for a single text, with a beginning for each segment: too little text does not stand for all of it.
    n_segments = sum(isinstance(event, events.Segment) for event in sent)
    assert covered_s <= (sum(map(str.isalnum, said)) + n_segments) * 0.5 + SLACK_S


async def test_a_sentence_that_is_spoken_five_times_is_not_lost(engine: Engine) -> None:
    """People do repeat themselves. Each time has its text, or is reported.

    Live only: the repetitive text of a file is decoded again at rising temperatures, and may then be wrong.
    """
    samples = repeated(read("hello"), 5)
    sent = await live(engine, samples)
    n_said, phrase = longest_row(text(sent))
    assert phrase == "hello everyone and welcome to the morning meeting"
    assert n_said <= 5
    assert not vanished(samples, sent)
    reported_s = sum(b - a for event in sent if isinstance(event, events.Utterance) for a, b in event.uncovered)
    assert reported_s > 2 * (5 - n_said) - 1


@pytest.mark.parametrize(
    ("listen", "sound"),
    [
        pytest.param(live, noise(5 * SAMPLE_RATE), id="in traffic"),
        pytest.param(as_file, melody(5), id="in music, in a file"),
    ],
)
async def test_speech_that_the_model_does_not_understand_is_reported(
    engine: Engine, listen: Listen, sound: Samples
) -> None:
    """All speech that a detector finds has text or is listed as uncovered."""
    samples = mixed(read("train"), sound, -5)
    sent = await listen(engine, samples)
    assert detected_speech(samples)
    assert not vanished(samples, sent)
