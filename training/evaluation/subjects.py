"""What the evaluation measures: the engine, window by window, and the service around it, through the Python client."""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np

import tutti
from app.main import Server, bind, build_app
from app.media.pcm import Samples
from app.service.settings import Settings
from app.session.hallucination_filter import HallucinationFilter
from engine.api import SAMPLE_RATE, DecodeOptions, DoneEvent, Window
from engine.config import AudioContext, EngineConfig
from engine.engine import Engine
from training.evaluation.clips import Clip

N_THREADS = 2
"""CPU threads of the engine."""
BATCH = 16
"""Windows that the engine encodes together."""
AHEAD_S = 3600.0
"""How far audio may run ahead of the clock: an hour, so that the service takes it as fast as it can."""
CHUNK_SAMPLES = SAMPLE_RATE // 5
"""Samples in a chunk: 200 ms."""
SERVICE_OPTIONS = DecodeOptions(language="en")
"""The options with which the service decodes a window whose language is given."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodedClip:
    """A clip and the engine's result for it."""

    clip: Clip
    done: DoneEvent

    @property
    def text(self) -> str:
        """The text of the whole clip."""
        return self.done.text

    @property
    def filtered_text(self) -> str:
        """The text without the segments that the service takes for silence."""
        hallucination_filter = HallucinationFilter()
        kept = [
            s.text
            for s in self.done.segments
            if hallucination_filter.is_speech(s.text, s.no_speech_prob, s.text_logprob)
        ]
        return "".join(kept)


class Subject:
    """A running engine and a running service on it, made by `Subject.start`."""

    def __init__(self, engine: Engine, url: str) -> None:
        self._engine = engine
        self._url = url
        self._room = asyncio.Semaphore(2 * BATCH)

    @classmethod
    @asynccontextmanager
    async def start(cls, model: str, audio_context: AudioContext = "auto") -> AsyncIterator[Self]:
        """Run an engine and a service until the block is left."""
        config = EngineConfig(
            model=model,
            device="cpu",
            audio_context=audio_context,
            n_threads=N_THREADS,
            n_slots=2 * BATCH,
            max_encode_batch=BATCH,
            max_wait_ms=50.0,
        )
        settings = Settings(port=0, max_ahead_s=AHEAD_S)
        async with Engine.start(config) as engine:
            server = Server(build_app(settings, engine), settings)
            with bind(settings) as listener:
                serving = asyncio.create_task(server.serve([listener]))
                try:
                    yield cls(engine, f"ws://127.0.0.1:{listener.getsockname()[1]}")
                finally:
                    server.stop()
                    await serving

    async def transcribe(
        self, clips: Sequence[Clip], options: DecodeOptions | Sequence[DecodeOptions] = SERVICE_OPTIONS
    ) -> list[DecodedClip]:
        """Decode clips as windows, many at a time. The results are in the order of the clips.

        Args:
            clips: clips of at most 30 s.
            options: the options of all clips, or of each. The language of a clip replaces theirs.
        """
        # A batch is as long as its longest window, so windows of similar length are submitted together.
        order = sorted(range(len(clips)), key=lambda index: len(clips[index].samples))
        all_options = [options] * len(clips) if isinstance(options, DecodeOptions) else options
        each = [dataclasses.replace(own, language=clip.language) for clip, own in zip(clips, all_options, strict=True)]
        async with asyncio.TaskGroup() as tasks:
            running = {index: tasks.create_task(self._decode(clips[index], each[index])) for index in order}
        return [running[index].result() for index in range(len(clips))]

    async def _decode(self, clip: Clip, options: DecodeOptions) -> DecodedClip:
        async with (
            self._room,
            self._engine.submit(Window(samples=clip.samples, session=clip.name, options=options)) as events,
        ):
            async for event in events:
                if isinstance(event, DoneEvent):
                    return DecodedClip(clip, event)
        raise AssertionError("a window ended without its last event")

    async def stream(
        self, channels: Samples, language: str = "en", interims_speed: float | None = None
    ) -> list[tutti.Utterance]:
        """Stream a recording to the service and return its utterances.

        Args:
            channels: `(channels, samples)` at 16 kHz. language: the language of the recording. interims_speed: request
            interims, and stream at this multiple of real time. Without it, audio is sent as fast
                as the service reads, and the text does not depend on the speed of the machine.
        """
        chunk_s = CHUNK_SAMPLES / SAMPLE_RATE
        pcm = (np.clip(channels.T, -1, 1) * 32767).astype("<i2")

        async def chunks() -> AsyncIterator[bytes]:
            started_at = time.monotonic()
            for number, start in enumerate(range(0, len(pcm), CHUNK_SAMPLES)):
                if interims_speed:
                    await asyncio.sleep(started_at + number * chunk_s / interims_speed - time.monotonic())
                yield pcm[start : start + CHUNK_SAMPLES].tobytes()

        async with tutti.connect(
            self._url, channels=len(channels), language=language, interim=bool(interims_speed), proxy=None
        ) as session:
            return [event async for event in session.stream(chunks()) if isinstance(event, tutti.Utterance)]


def text_of(utterances: Sequence[tutti.Utterance], channel: int | None = None) -> str:
    """The text of one channel, or of all channels, in the order of speech."""
    chosen = [each for each in utterances if channel in (None, each.channel)]
    return " ".join(each.text.strip() for each in sorted(chosen, key=lambda each: each.start_s) if each.text)
