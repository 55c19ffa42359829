"""Runs a session in audio time: its engine answers every window before the next sample arrives.

Nothing depends on the pace of the machine, so a repeated run has the same events.
"""

import time
from collections import deque
from typing import Protocol

from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.core.effects import Effect, Send, Submit
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.session import Session
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE, Transcriber

CHUNK_SAMPLES = SAMPLE_RATE // 10
"""Audio is fed in chunks of 100 ms."""


class Observer(Protocol):
    """Sees what happens in a session."""

    def on_event(self, at_s: float, event: events.Event) -> None:
        """An event was sent when `at_s` seconds of audio had been fed."""
        ...

    def on_window(self, window: api.Window, answers: list[api.EngineEvent], cpu_s: float) -> None:
        """The engine has answered a window, and this process took `cpu_s` seconds of processor time for it.

        The events that follow from the answers are sent afterwards.
        """
        ...


async def run_in_audio_time(
    session: Session, start: commands.Start, engine: Transcriber, samples: Samples, observer: Observer
) -> None:
    """Run a session that hears these samples; `start` asks for audio in `pcm_f32le`."""
    waiting: deque[Effect] = deque(session.receive(start))

    async def perform() -> None:
        while waiting:
            match waiting.popleft():
                case Send(event):
                    observer.on_event(session.now_s, event)
                case Submit(job, window):
                    begun_s, answers = time.process_time(), list[api.EngineEvent]()
                    async with engine.submit(window) as stream:
                        async for answer in stream:
                            answers.append(answer)
                            waiting.extend(session.engine_event(job, answer))
                    observer.on_window(window, answers, time.process_time() - begun_s)
                case _:
                    pass

    samples = samples.astype("<f4")
    for begin in range(0, len(samples), CHUNK_SAMPLES):
        waiting.extend(session.receive(commands.Audio(samples[begin : begin + CHUNK_SAMPLES].tobytes())))
        await perform()
    waiting.extend(session.receive(commands.Stop()))
    await perform()
