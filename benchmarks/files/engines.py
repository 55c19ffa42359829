"""The engines that `benchmarks.offline` compares, each as a function from recordings to texts.

Run as a program, it is one engine in its own process: `offline` starts it with its thread settings in the environment,
and every line that it reads starts one measured pass over the recordings.
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

from benchmarks.recordings import windows
from tutti_server.app.media.pcm import Samples
from tutti_server.engine import api
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.process_environment import prepare_environment

Transcribe = Callable[[list[Samples]], list[str]]
"""Returns the text of each recording."""

BATCH = 8
"""Windows in a batch of faster-whisper and transformers: tutti's default for its encoder."""
AT_ONCE = 16
"""Concurrent files or windows where several run at once."""
PIECE_SAMPLES = 10 * api.SAMPLE_RATE
"""Samples in the pieces in which a file reaches tutti: 10 s."""
WARM_UP_SAMPLES = 40 * api.SAMPLE_RATE
"""Samples of the recording that warms an engine up: 40 s, more than one window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one process measures."""

    engine: str
    n_threads: int
    folder: str
    """The checkpoint folder in the layout of transformers."""
    ct2_folder: str
    """The same checkpoint, converted for CTranslate2. Empty if faster-whisper is not installed."""
    audio: str
    """An `.npz` file of recordings."""
    language: str


@contextmanager
def tutti_files(job: Job, at_once: int = 1) -> Iterator[Transcribe]:
    """Tutti with whole files, `at_once` of them concurrently, through detector, session and windows like uploads."""
    from tutti_server.app.files.transcript import Transcript
    from tutti_server.app.files.transcription import TranscriptionOptions, transcribe
    from tutti_server.app.session.session import SessionConfig

    with _tutti(job) as (engine, run):

        async def one(samples: Samples, session: str, room: asyncio.Semaphore) -> str:
            transcript = Transcript()
            async with room:
                await transcribe(
                    engine,
                    _in_pieces(samples),
                    transcript.add,
                    session_id=session,
                    config=SessionConfig(),
                    options=TranscriptionOptions(language=job.language),
                )
            return transcript.text

        async def every(clips: list[Samples]) -> list[str]:
            room = asyncio.Semaphore(at_once)
            return list(await asyncio.gather(*(one(clip, f"file {i}", room) for i, clip in enumerate(clips))))

        yield lambda clips: run(every(clips))


@contextmanager
def tutti_windows(job: Job) -> Iterator[Transcribe]:
    """Tutti's engine with `AT_ONCE` concurrent windows, without timestamps like the batches of faster-whisper."""
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
    """faster-whisper, greedy and with its voice detector.

    Previous text and temperature fallback are off, because they make it lose speech or sample. With several files at a
    time there are as many workers as threads.
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
    """`generate` of transformers on batches of the windows of `tutti_windows`. It returns the same text as tutti."""
    import torch
    from transformers import WhisperForConditionalGeneration, WhisperProcessor

    torch.set_num_threads(job.n_threads)
    # transformers leaves these classes partly untyped.
    processor: Any = WhisperProcessor.from_pretrained(job.folder)
    model: Any = WhisperForConditionalGeneration.from_pretrained(job.folder, dtype=torch.float32)
    model.eval()
    language_options: dict[str, Any] = {}
    if model.generation_config.is_multilingual:
        language_options = {"language": job.language, "task": "transcribe"}

    def batch_texts(batch: list[Samples]) -> list[str]:
        features = processor.feature_extractor(batch, sampling_rate=api.SAMPLE_RATE, return_tensors="pt")
        tokens = model.generate(
            features.input_features, return_timestamps=False, do_sample=False, num_beams=1, **language_options
        )
        return [text.strip() for text in processor.batch_decode(tokens, skip_special_tokens=True)]

    def every(clips: list[Samples]) -> list[str]:
        cut = [windows(clip) for clip in clips]
        flat = [each for row in cut for each in row]
        texts = iter([text for i in range(0, len(flat), BATCH) for text in batch_texts(flat[i : i + BATCH])])
        return [" ".join(next(texts) for _ in row) for row in cut]

    yield every


@dataclass(frozen=True, slots=True)
class OfflineEngine:
    """An engine in the comparison."""

    title: str
    open: Callable[[Job], AbstractContextManager[Transcribe]]
    needs: str = "torch"
    """The Python module without which the engine is left out."""


OFFLINE_ENGINES = {
    "tutti": OfflineEngine("tutti, file by file", tutti_files),
    "tutti-16-files": OfflineEngine(f"tutti, {AT_ONCE} files at once", partial(tutti_files, at_once=AT_ONCE)),
    "tutti-16": OfflineEngine(f"tutti, {AT_ONCE} windows at once", tutti_windows),
    "fw-float32": OfflineEngine(
        "faster-whisper float32, sequential",
        partial(faster_whisper, compute_type="float32", is_batched=False),
        "faster_whisper",
    ),
    "fw-int8": OfflineEngine(
        "faster-whisper int8, sequential",
        partial(faster_whisper, compute_type="int8", is_batched=False),
        "faster_whisper",
    ),
    "fw-batched-float32": OfflineEngine(
        f"faster-whisper float32, batched {BATCH}",
        partial(faster_whisper, compute_type="float32", is_batched=True),
        "faster_whisper",
    ),
    "fw-batched-int8": OfflineEngine(
        f"faster-whisper int8, batched {BATCH}",
        partial(faster_whisper, compute_type="int8", is_batched=True),
        "faster_whisper",
    ),
    "fw-batched-float32-16": OfflineEngine(
        f"faster-whisper float32, batched {BATCH}, {AT_ONCE} files at once",
        partial(faster_whisper, compute_type="float32", is_batched=True, at_once=AT_ONCE),
        "faster_whisper",
    ),
    "fw-batched-int8-16": OfflineEngine(
        f"faster-whisper int8, batched {BATCH}, {AT_ONCE} files at once",
        partial(faster_whisper, compute_type="int8", is_batched=True, at_once=AT_ONCE),
        "faster_whisper",
    ),
    "transformers": OfflineEngine(f"transformers generate, batch {BATCH}", transformers_generate, "transformers"),
}


class _Multilingual:
    """A CTranslate2 model that reports that it is multilingual.

    CTranslate2 recognises multilingual checkpoints by the size of OpenAI's vocabulary. For other checkpoints
    faster-whisper leaves language and task out of the prompt, and a multilingual model then loses most of the speech.
    """

    is_multilingual = True

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


@contextmanager
def _tutti(job: Job) -> Iterator[tuple[api.Transcriber, Callable[[Any], Any]]]:
    from tutti_server.engine.config import EngineConfig
    from tutti_server.engine.engine import Engine

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
    """Answer every input line with the figures of one pass. The first answer reports that the engine is ready."""
    prepare_environment()
    job = Job(**json.loads(sys.argv[1]))
    # Standard output carries the answers alone: what libraries print goes to standard error.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with np.load(job.audio) as archive:
        clips: list[Samples] = [archive[name] for name in archive.files]
    with OFFLINE_ENGINES[job.engine].open(job) as transcribe:
        transcribe([clips[0][:WARM_UP_SAMPLES]])
        print(json.dumps({"ready": asdict(job)}), file=answers)
        for _ in sys.stdin:
            print(json.dumps(measure(transcribe, clips)), file=answers)


def measure(transcribe: Transcribe, clips: list[Samples]) -> dict[str, Any]:
    """Run one pass over the recordings and return its figures."""
    started_at, cpu_before_s = time.perf_counter(), time.process_time()
    texts = transcribe(clips)
    return {
        "wall_s": time.perf_counter() - started_at,
        "cpu_s": time.process_time() - cpu_before_s,
        "rss_max_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "texts": texts,
    }


if __name__ == "__main__":
    main()
