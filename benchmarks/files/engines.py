"""The engines that `benchmarks.offline` compares, each as a function from recordings to texts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import uvloop

from benchmarks.own_process import Load, use_threads
from tutti_server.app.media.pcm import Samples
from tutti_server.engine import api

LANGUAGE = "en"
BATCH = 8
"""Windows in a batch of faster-whisper: tutti's default for its encoder."""
AT_ONCE = 16
"""Concurrent files where several run at once."""
PIECE_SAMPLES = 10 * api.SAMPLE_RATE
"""Samples in the pieces in which a file reaches tutti: 10 s."""
WARM_UP_SAMPLES = 40 * api.SAMPLE_RATE
"""Samples of the recording that warms an engine up: 40 s, more than one window."""
Transcribe = Callable[[list[Samples]], list[str]]
"""Returns the text of each recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one process measures."""

    engine: str
    n_threads: int
    folder: str
    """The checkpoint folder of tutti."""
    ct2_folder: str
    """The same checkpoint, converted for CTranslate2. Empty if faster-whisper is not installed."""
    audio: str
    """An `.npz` file of recordings."""


def open_engine(stack: ExitStack, job: Job) -> Load:
    """Load an engine in a process of its own, and warm it up. A turn is a pass over all recordings."""
    use_threads(job.n_threads)
    with np.load(job.audio) as archive:
        clips: list[Samples] = [archive[name] for name in archive.files]
    transcribe = OFFLINE_ENGINES[job.engine].open(stack, job)
    transcribe([clips[0][:WARM_UP_SAMPLES]])
    return lambda: transcribe(clips)


def open_tutti(stack: ExitStack, job: Job, at_once: int = 1) -> Transcribe:
    """Tutti with whole files, `at_once` of them concurrently, through detector, session and windows like uploads."""
    from tutti_server.app.files.transcript import Transcript
    from tutti_server.app.files.transcription import transcribe
    from tutti_server.app.files.transcription_options import TranscriptionOptions
    from tutti_server.app.session.core.options import SessionConfig
    from tutti_server.engine.config import EngineConfig
    from tutti_server.engine.engine import Engine
    from tutti_server.engine.process_environment import prepare_environment

    prepare_environment()
    runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
    starting = Engine.start(EngineConfig(model=job.folder, device="cpu", n_threads=job.n_threads))
    engine = runner.run(starting.__aenter__())
    stack.callback(lambda: runner.run(starting.__aexit__(None, None, None)))
    options = TranscriptionOptions(language=LANGUAGE)

    async def one(samples: Samples, session: str, room: asyncio.Semaphore) -> str:
        transcript, pieces = Transcript(), _in_pieces(samples)
        async with room:
            await transcribe(
                engine, pieces, transcript.add, session_id=session, config=SessionConfig(), options=options
            )
        return transcript.text

    async def every(clips: list[Samples]) -> list[str]:
        room = asyncio.Semaphore(at_once)
        return list(await asyncio.gather(*(one(clip, f"file {i}", room) for i, clip in enumerate(clips))))

    return lambda clips: runner.run(every(clips))


def open_faster_whisper(stack: ExitStack, job: Job, compute_type: str, *, is_batched: bool) -> Transcribe:
    """faster-whisper, greedy and with its voice detector.

    Previous text and temperature fallback are off, because they make it lose speech or sample.
    """
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    from benchmarks.peer_servers.checkpoint import make_multilingual
    from tutti_server.engine.checkpoint.checkpoint import read_checkpoint

    if read_checkpoint(job.folder).generation.is_multilingual:
        make_multilingual(WhisperModel)
    model = WhisperModel(job.ct2_folder, device="cpu", compute_type=compute_type, cpu_threads=job.n_threads)
    options: dict[str, Any] = {"language": LANGUAGE, "beam_size": 1, "temperature": 0.0, "vad_filter": True}
    if is_batched:
        work = partial(BatchedInferencePipeline(model).transcribe, batch_size=BATCH, **options)
    else:
        work = partial(model.transcribe, condition_on_previous_text=False, **options)
    return lambda clips: ["".join(segment.text for segment in work(clip)[0]).strip() for clip in clips]


@dataclass(frozen=True, slots=True)
class OfflineEngine:
    """An engine in the comparison."""

    title: str
    open: Callable[[ExitStack, Job], Transcribe]
    needs: str = "torch"
    """The Python module without which the engine is left out."""


OFFLINE_ENGINES = {
    "tutti": OfflineEngine("tutti, file by file", open_tutti),
    "tutti-16": OfflineEngine(f"tutti, {AT_ONCE} files at once", partial(open_tutti, at_once=AT_ONCE)),
} | {
    f"fw-{'batched-' * is_batched}{dtype}": OfflineEngine(
        f"faster-whisper {dtype}, {f'batched {BATCH}' if is_batched else 'sequential'}",
        partial(open_faster_whisper, compute_type=dtype, is_batched=is_batched),
        "faster_whisper",
    )
    for is_batched in (False, True)
    for dtype in ("float32", "int8")
}


async def _in_pieces(samples: Samples) -> AsyncIterator[Samples]:
    for begin in range(0, len(samples), PIECE_SAMPLES):
        yield samples[begin : begin + PIECE_SAMPLES]
