"""The engines that `benchmarks.offline` compares, each as a function from recordings to texts.

Run as a program, it is one engine in a process of its own: `offline` starts it with its thread settings in the
environment, and every line it reads is one measured pass over the recordings.
"""

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import uvloop

from app.media.pcm import Samples
from benchmarks.recordings import windows
from engine import api
from engine.checkpoint.checkpoint import read_checkpoint
from engine.process_environment import limit_openmp_spinning

Transcribe = Callable[[list[Samples]], list[str]]

BATCH = 8
"""Windows in a batch of faster-whisper and transformers; tutti's own default for its encoder."""
AT_ONCE = 16
"""Requests that tutti is given at the same time."""
PIECE_SAMPLES = 10 * api.SAMPLE_RATE
WARM_UP_SAMPLES = 40 * api.SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Job:
    """What one process is to measure."""

    engine: str
    n_threads: int
    folder: str
    """The checkpoint as transformers has it."""
    ct2_folder: str
    """The same checkpoint, converted for CTranslate2; empty where faster-whisper is not installed."""
    audio: str
    """An `.npz` of recordings."""
    language: str


@contextmanager
def tutti_files(job: Job, at_once: int = 1) -> Iterator[Transcribe]:
    """So many files at a time, as `tutti transcribe` and uploads are: with the detector, sessions and windows."""
    from app.files.transcript import Transcript
    from app.files.transcription import transcribe
    from app.session.session import SessionConfig

    with _tutti(job) as (engine, run):

        async def one(samples: Samples, session: str, room: asyncio.Semaphore) -> str:
            transcript = Transcript()
            async with room:
                await transcribe(
                    engine,
                    _in_pieces(samples),
                    transcript.take,
                    session_id=session,
                    config=SessionConfig(),
                    language=job.language,
                )
            return transcript.text

        async def every(clips: list[Samples]) -> list[str]:
            room = asyncio.Semaphore(at_once)
            return list(await asyncio.gather(*(one(clip, f"file {i}", room) for i, clip in enumerate(clips))))

        yield lambda clips: run(every(clips))


@contextmanager
def tutti_windows(job: Job) -> Iterator[Transcribe]:
    """Windows straight to the engine, `AT_ONCE` at a time, without timestamps like faster-whisper's batches."""
    with _tutti(job) as (engine, run):
        options = api.DecodeOptions(language=job.language, timestamps=False)

        async def window_text(samples: Samples, session: str, room: asyncio.Semaphore) -> str:
            async with room, engine.submit(api.Window(samples=samples, session=session, options=options)) as events:
                async for event in events:
                    if isinstance(event, api.DoneEvent):
                        return event.text.strip()
            raise AssertionError("a final always ends with DoneEvent")

        async def every(clips: list[Samples]) -> list[str]:
            room = asyncio.Semaphore(AT_ONCE)
            cut = [windows(clip) for clip in clips]
            texts = iter(
                await asyncio.gather(
                    *(window_text(each, f"{i}.{j}", room) for i, row in enumerate(cut) for j, each in enumerate(row))
                )
            )
            return [" ".join(next(texts) for _ in row) for row in cut]

        yield lambda clips: run(every(clips))


@contextmanager
def faster_whisper(job: Job, compute_type: str, *, is_batched: bool, at_once: int = 1) -> Iterator[Transcribe]:
    """Greedy, with its voice detector, and without what makes it lose speech or sample: text before the window, and
    temperature fallback. Several files at a time are shared by as many workers as there are threads.
    """
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    n_workers = job.n_threads if at_once > 1 else 1
    model = WhisperModel(
        job.ct2_folder,
        device="cpu",
        compute_type=compute_type,
        cpu_threads=job.n_threads // n_workers,
        num_workers=n_workers,
    )
    if read_checkpoint(job.folder).generation.is_multilingual:
        model.model = _Multilingual(model.model)
    options: dict[str, Any] = {"language": job.language, "beam_size": 1, "temperature": 0.0, "vad_filter": True}
    if is_batched:
        work = partial(BatchedInferencePipeline(model).transcribe, batch_size=BATCH, **options)
    else:
        work = partial(model.transcribe, condition_on_previous_text=False, **options)

    def one(clip: Samples) -> str:
        return "".join(segment.text for segment in work(clip)[0]).strip()

    with ThreadPoolExecutor(at_once) as pool:
        yield lambda clips: list(pool.map(one, clips))


@contextmanager
def transformers_generate(job: Job) -> Iterator[Transcribe]:
    """`generate` on batches of the windows of `tutti_windows`, without timestamps as there: the same text comes out."""
    import torch
    from transformers import WhisperForConditionalGeneration, WhisperProcessor

    torch.set_num_threads(job.n_threads)
    processor = WhisperProcessor.from_pretrained(job.folder)
    model = WhisperForConditionalGeneration.from_pretrained(job.folder, dtype=torch.float32).eval()
    told = {"language": job.language, "task": "transcribe"} if model.generation_config.is_multilingual else {}

    def batch_texts(batch: list[Samples]) -> list[str]:
        features = processor.feature_extractor(batch, sampling_rate=api.SAMPLE_RATE, return_tensors="pt")
        tokens = model.generate(features.input_features, return_timestamps=False, do_sample=False, num_beams=1, **told)
        return [text.strip() for text in processor.batch_decode(tokens, skip_special_tokens=True)]

    def every(clips: list[Samples]) -> list[str]:
        cut = [windows(clip) for clip in clips]
        flat = [each for row in cut for each in row]
        texts = iter([text for i in range(0, len(flat), BATCH) for text in batch_texts(flat[i : i + BATCH])])
        return [" ".join(next(texts) for _ in row) for row in cut]

    yield every


@dataclass(frozen=True, slots=True)
class Contender:
    """An engine in the comparison."""

    title: str
    open: Callable[[Job], AbstractContextManager[Transcribe]]
    needs: str = "torch"
    """The module without which it is left out."""


CONTENDERS = {
    "tutti": Contender("tutti, file by file", tutti_files),
    "tutti-16-files": Contender(f"tutti, {AT_ONCE} files at once", partial(tutti_files, at_once=AT_ONCE)),
    "tutti-16": Contender(f"tutti, {AT_ONCE} windows at once", tutti_windows),
    "fw-float32": Contender(
        "faster-whisper float32, sequential",
        partial(faster_whisper, compute_type="float32", is_batched=False),
        "faster_whisper",
    ),
    "fw-int8": Contender(
        "faster-whisper int8, sequential",
        partial(faster_whisper, compute_type="int8", is_batched=False),
        "faster_whisper",
    ),
    "fw-batched-float32": Contender(
        f"faster-whisper float32, batched {BATCH}",
        partial(faster_whisper, compute_type="float32", is_batched=True),
        "faster_whisper",
    ),
    "fw-batched-int8": Contender(
        f"faster-whisper int8, batched {BATCH}",
        partial(faster_whisper, compute_type="int8", is_batched=True),
        "faster_whisper",
    ),
    "fw-batched-float32-16": Contender(
        f"faster-whisper float32, batched {BATCH}, {AT_ONCE} files at once",
        partial(faster_whisper, compute_type="float32", is_batched=True, at_once=AT_ONCE),
        "faster_whisper",
    ),
    "fw-batched-int8-16": Contender(
        f"faster-whisper int8, batched {BATCH}, {AT_ONCE} files at once",
        partial(faster_whisper, compute_type="int8", is_batched=True, at_once=AT_ONCE),
        "faster_whisper",
    ),
    "transformers": Contender(f"transformers generate, batch {BATCH}", transformers_generate, "transformers"),
}


class _Multilingual:
    """A model of CTranslate2 that says so.

    It knows multilingual checkpoints by the size of OpenAI's vocabulary. With others faster-whisper leaves language and
    task out of the prompt, and the embedded model then loses most of what it hears.
    """

    is_multilingual = True

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


@contextmanager
def _tutti(job: Job) -> Iterator[tuple[api.Transcriber, Callable[[Any], Any]]]:
    from engine.config import EngineConfig
    from engine.engine import Engine

    config = EngineConfig(model=job.folder, device="cpu", n_threads=job.n_threads)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        starting = Engine.start(config)
        engine = runner.run(starting.__aenter__())
        try:
            yield engine, runner.run
        finally:
            runner.run(starting.__aexit__(None, None, None))


async def _in_pieces(samples: Samples) -> AsyncIterator[Samples]:
    for begin in range(0, len(samples), PIECE_SAMPLES):
        yield samples[begin : begin + PIECE_SAMPLES]


def main() -> None:
    """Answer every line of the input with the figures of one pass; the first answer says that the engine is ready."""
    limit_openmp_spinning()
    job = Job(**json.loads(sys.argv[1]))
    # Whatever libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with np.load(job.audio) as archive:
        clips: list[Samples] = [archive[name] for name in archive.files]
    with CONTENDERS[job.engine].open(job) as transcribe:
        transcribe([clips[0][:WARM_UP_SAMPLES]])
        print(json.dumps({"ready": asdict(job)}), file=answers)
        for _ in sys.stdin:
            print(json.dumps(measure(transcribe, clips)), file=answers)


def measure(transcribe: Transcribe, clips: list[Samples]) -> dict[str, Any]:
    begun, cpu_begun = time.perf_counter(), time.process_time()
    texts = transcribe(clips)
    return {
        "wall_s": time.perf_counter() - begun,
        "cpu_s": time.process_time() - cpu_begun,
        "rss_max_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "texts": texts,
    }


if __name__ == "__main__":
    main()
