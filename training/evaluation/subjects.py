"""What the evaluation asks: the engine, window by window, and the service around it, through the Python client."""

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
from app.session.speech_filter import SpeechFilter
from engine.api import SAMPLE_RATE, DecodeOptions, DoneEvent, Window
from engine.config import AudioContext, EngineConfig
from engine.engine import Engine
from training.evaluation.clips import Clip

N_THREADS = 2
BATCH = 16
AHEAD_S = 3600.0
"""Audio goes in as fast as the service reads it."""
CHUNK_SAMPLES = SAMPLE_RATE // 5
SERVED = DecodeOptions(language="en")
"""How the service has a window decoded whose language it was told."""


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """A clip and what the engine made of it."""

    clip: Clip
    done: DoneEvent

    @property
    def text(self) -> str:
        return self.done.text

    @property
    def gated_text(self) -> str:
        """Without the segments that the service takes for silence."""
        gate = SpeechFilter()
        kept = [s.text for s in self.done.segments if gate.is_speech(s.text, s.no_speech_prob, s.avg_logprob)]
        return "".join(kept)


class Listener:
    """A running engine and a service on it. Made by `Listener.start`."""

    def __init__(self, engine: Engine, url: str) -> None:
        self._engine = engine
        self._url = url
        self._room = asyncio.Semaphore(2 * BATCH)

    @classmethod
    @asynccontextmanager
    async def start(cls, model: str, audio_context: AudioContext = "auto") -> AsyncIterator[Self]:
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

    async def hear(
        self, clips: Sequence[Clip], options: DecodeOptions | Sequence[DecodeOptions] = SERVED
    ) -> list[Heard]:
        """Decode windows, in their order, many at a time.

        Args:
            options: of all, or one for each; a clip's own language takes the place of theirs.
        """
        # Windows of one length share a batch, which is as long as its longest.
        order = sorted(range(len(clips)), key=lambda index: len(clips[index].samples))
        all_options = [options] * len(clips) if isinstance(options, DecodeOptions) else options
        each = [dataclasses.replace(own, language=clip.language) for clip, own in zip(clips, all_options, strict=True)]
        async with asyncio.TaskGroup() as tasks:
            running = {index: tasks.create_task(self._hear(clips[index], each[index])) for index in order}
        return [running[index].result() for index in range(len(clips))]

    async def _hear(self, clip: Clip, options: DecodeOptions) -> Heard:
        async with (
            self._room,
            self._engine.submit(Window(samples=clip.samples, session=clip.name, options=options)) as events,
        ):
            async for event in events:
                if isinstance(event, DoneEvent):
                    return Heard(clip, event)
        raise AssertionError("a window ended without its last event")

    async def stream(
        self, channels: Samples, language: str = "en", interims_at: float | None = None
    ) -> list[tutti.Utterance]:
        """The utterances of a recording, `(channels, samples)`, streamed as fast as the service reads.

        Args:
            interims_at: ask for interims, and stream at so many times real time. Without, the text does not depend on
                how fast the machine is.
        """
        chunk_s = CHUNK_SAMPLES / SAMPLE_RATE
        pcm = (np.clip(channels.T, -1, 1) * 32767).astype("<i2")

        async def chunks() -> AsyncIterator[bytes]:
            began = time.monotonic()
            for number, start in enumerate(range(0, len(pcm), CHUNK_SAMPLES)):
                if interims_at:
                    await asyncio.sleep(began + number * chunk_s / interims_at - time.monotonic())
                yield pcm[start : start + CHUNK_SAMPLES].tobytes()

        async with tutti.connect(
            self._url, channels=len(channels), language=language, interim=bool(interims_at), proxy=None
        ) as session:
            return [event async for event in session.stream(chunks()) if isinstance(event, tutti.Utterance)]


def text_of(utterances: Sequence[tutti.Utterance], channel: int | None = None) -> str:
    """The texts of one channel, or of all, in the order in which they were spoken."""
    chosen = [each for each in utterances if channel in (None, each.channel)]
    return " ".join(each.text.strip() for each in sorted(chosen, key=lambda each: each.start_s) if each.text)
