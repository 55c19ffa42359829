"""Runs clips as live sessions in audio time and as files, with an engine of this process or of several.

In audio time the engine answers every window before the next sample arrives. Nothing depends on the pace of the
machine, so a repeated run has the same events.
"""

import asyncio
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace

import click
import numpy as np

from benchmarks.files.labelled_clips import Clip
from benchmarks.live.captions import SpokenWord
from benchmarks.live.client import CHUNK_SAMPLES
from benchmarks.live.live_text import LiveText, ReaderFigures, measure
from benchmarks.scoring import words
from tutti_server.app.errors import SessionError
from tutti_server.app.files.transcription import transcribe
from tutti_server.app.files.transcription_options import TranscriptionOptions
from tutti_server.app.media.pcm import AudioFormat, Samples
from tutti_server.app.service.settings import Settings
from tutti_server.app.session.core.effects import Effect, Send, Submit
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.session import Session
from tutti_server.app.session.text.stabilizer import POLICIES, MakePolicy, SeenWord
from tutti_server.engine.api import SAMPLE_RATE, Transcriber
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.errors import EngineError

FILES = "files"
NO_INTERIMS = "none"
INTERVAL_MS = 350
"""Least audio between two interims, in ms."""
TAIL_S = 2.0
"""Seconds of silence after each clip, so that its last utterance ends."""
N_SLOTS = 32
"""The slots of an engine. One session needs few, and the engines of several processes share one GPU."""


class Never:
    """No word is stable before its utterance is final."""

    needs_attention = False

    def is_stable(self, word: SeenWord, audio_s: float) -> bool:
        return False


LIVE_POLICIES: dict[str, MakePolicy] = {**POLICIES, "never": Never, NO_INTERIMS: Never}
"""The policies of live rows by name. Without interims no policy is asked."""


@dataclass(frozen=True, slots=True)
class Mode:
    """How clips become text: one row of the tables."""

    policy: str
    """One of `LIVE_POLICIES`, or `FILES`."""
    beams: int
    """The beams of finals and files; interims are greedy."""

    @property
    def is_live(self) -> bool:
        return self.policy != FILES

    @property
    def title(self) -> str:
        return f"{self.policy}, {self.beams} {'beam' if self.beams == 1 else 'beams'}"


@dataclass(slots=True)
class ModeResult:
    texts: list[str] = field(default_factory=list)
    figures: ReaderFigures = field(default_factory=ReaderFigures)
    """Empty for files."""


ClipResults = dict[Mode, ModeResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    engine: EngineConfig
    endpointing: commands.Endpointing
    modes: tuple[Mode, ...]


def run_in_processes(setup: Setup, clips: Sequence[Clip], n_processes: int) -> dict[str, ClipResults]:
    """The results of all clips by name. Each process has an engine of its own, and one process is this one."""
    shares = divide(clips, n_processes)
    n_threads = max(1, (os.cpu_count() or 1) // len(shares))
    setup = replace(setup, engine=replace(setup.engine, n_threads=n_threads))
    if len(shares) == 1:
        return run_share(setup, shares[0])
    found: dict[str, ClipResults] = {}
    # Spawned: neither CUDA nor threads survive a fork.
    with ProcessPoolExecutor(len(shares), mp_context=multiprocessing.get_context("spawn")) as pool:
        for each in pool.map(run_share, [setup] * len(shares), shares):
            found |= each
    return found


def divide(clips: Sequence[Clip], n: int) -> list[list[Clip]]:
    """Clips in at most `n` shares of about equal length in seconds."""
    shares: list[list[Clip]] = [[] for _ in range(min(n, len(clips)))]
    for clip in sorted(clips, key=lambda clip: -clip.audio_s):
        min(shares, key=lambda share: sum(each.audio_s for each in share)).append(clip)
    return shares


def run_share(setup: Setup, clips: Sequence[Clip]) -> dict[str, ClipResults]:
    """The results of these clips by name, with an engine of this process."""
    return asyncio.run(_run_share(setup, clips))


async def _run_share(setup: Setup, clips: Sequence[Clip]) -> dict[str, ClipResults]:
    from tutti_server.engine.engine import Engine

    config = Settings(model=setup.engine.model, interim_interval_ms=INTERVAL_MS).session_config
    found = {}
    async with Engine.start(setup.engine) as engine:
        for number, clip in enumerate(clips, 1):
            found[clip.name] = await run_clip(engine, clip, setup.modes, config, setup.endpointing)
            print(f"{number} of {len(clips)} clips in process {os.getpid()}", file=sys.stderr)
    return found


async def run_clip(
    engine: Transcriber,
    clip: Clip,
    modes: Sequence[Mode],
    config: SessionConfig,
    endpointing: commands.Endpointing,
) -> ClipResults:
    """Run one clip in each mode, one channel after the other; `endpointing` is that of live sessions."""
    found = {mode: ModeResult() for mode in modes}
    language = clip.named_language
    most_beams = max(mode.beams for mode in modes)
    try:
        for channel in clip.channels:
            samples = channel.astype(np.float32) / np.float32(32768)
            # Not a row of the tables: with times of words a text may be another one.
            spoken = await time_words(engine, samples, language, replace(config, beam_size=most_beams))
            for mode, result in found.items():
                of_mode = replace(config, beam_size=mode.beams)
                if mode.is_live:
                    of_mode = replace(of_mode, make_policy=LIVE_POLICIES[mode.policy])
                    live = await run_live(engine, samples, _start(mode, language, endpointing), of_mode)
                    result.texts.append(live.text)
                    result.figures.add(measure(live, spoken))
                else:
                    result.texts.append(await run_file(engine, samples, language, of_mode))
    except (SessionError, EngineError) as error:
        raise click.ClickException(f"{clip.name}: {error}") from error
    return found


async def run_live(engine: Transcriber, samples: Samples, start: commands.Start, config: SessionConfig) -> LiveText:
    """Run one session in which the engine answers every window at once; `start` asks for audio in `pcm_f32le`."""
    live, session = LiveText(), Session("bench", engine.info, config)
    waiting: deque[Effect] = deque(session.receive(start))

    async def perform() -> None:
        while waiting:
            match waiting.popleft():
                case Send(event):
                    live.on_event(session.now_s, event)
                case Submit(job, window):
                    async with engine.submit(window) as stream:
                        async for answer in stream:
                            waiting.extend(session.engine_event(job, answer))
                case _:
                    pass

    with_tail = np.concatenate((samples, np.zeros(round(TAIL_S * SAMPLE_RATE), np.float32))).astype("<f4")
    for begin in range(0, len(with_tail), CHUNK_SAMPLES):
        waiting.extend(session.receive(commands.Audio(with_tail[begin : begin + CHUNK_SAMPLES].tobytes())))
        await perform()
    waiting.extend(session.receive(commands.Stop()))
    await perform()
    return live


async def run_file(engine: Transcriber, samples: Samples, language: str | None, config: SessionConfig) -> str:
    """The text of a recording as the service writes it for files."""
    found = await _transcribe(engine, samples, TranscriptionOptions(language=language), config)
    return " ".join(each.text for each in found if isinstance(each, events.Utterance) and each.text)


async def time_words(
    engine: Transcriber, samples: Samples, language: str | None, config: SessionConfig
) -> list[SpokenWord]:
    """The words of a recording with the times that files give them. A word with a hyphen has one time for all parts."""
    found = await _transcribe(engine, samples, TranscriptionOptions(language=language, words=True), config)
    timed = [word for each in found if isinstance(each, events.Segment) for word in each.words]
    return [SpokenWord(part, word.start_s, word.end_s) for word in timed for part in words(word.text)]


async def _transcribe(
    engine: Transcriber, samples: Samples, options: TranscriptionOptions, config: SessionConfig
) -> list[events.Event]:
    found: list[events.Event] = []

    async def pieces() -> AsyncIterator[Samples]:
        for begin in range(0, len(samples), SAMPLE_RATE):
            yield samples[begin : begin + SAMPLE_RATE]

    await transcribe(engine, pieces(), found.append, session_id="bench", config=config, options=options)
    return found


def _start(mode: Mode, language: str | None, endpointing: commands.Endpointing) -> commands.Start:
    return commands.Start(
        audio=AudioFormat("pcm_f32le"),
        language=language,
        interim=mode.policy != NO_INTERIMS,
        endpointing=endpointing,
    )
