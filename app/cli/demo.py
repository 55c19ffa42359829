"""`tutti demo`: a recording streamed over a real WebSocket at the pace of speech, its captions as they are heard."""

import asyncio
import time
from contextlib import aclosing
from pathlib import Path
from typing import IO

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

import tutti
from app.cli.terminal import clock, segment_line
from app.errors import SessionError
from app.media.file_decoder import decode_file
from engine.api import SAMPLE_RATE

SAMPLE = Path(__file__).parents[1] / "assets" / "sample.flac"
CHUNK_MS = 100
CHUNK_SAMPLES = SAMPLE_RATE * CHUNK_MS // 1000


class _Latency:
    """When audio left for the server, and how long its text took."""

    def __init__(self) -> None:
        self._sent: list[float] = []
        self._spoken: dict[int, float] = {}
        self.first_text_s: list[float] = []
        self.final_s: list[float] = []

    def note_sent(self) -> None:
        self._sent.append(time.monotonic())

    def take(self, event: tutti.Event) -> None:
        match event:
            case tutti.SpeechStarted():
                self._spoken[event.utterance] = self._age(event.at_s)
            case tutti.Interim() | tutti.Segment() if event.utterance in self._spoken:
                self.first_text_s.append(time.monotonic() - self._spoken.pop(event.utterance))
            case tutti.Utterance():
                self.final_s.append(time.monotonic() - self._age(event.end_s))

    def _age(self, audio_s: float) -> float:
        """When the chunk that holds this moment was sent."""
        return self._sent[min(int(audio_s * 1000) // CHUNK_MS, len(self._sent) - 1)]


async def run_demo(console: Console, url: str, file: IO[bytes], name: str) -> None:
    """Stream the recording, show captions, end with a line of figures.

    Raises:
        MediaError: the recording cannot be decoded.
        SessionError: the server could not be reached, or ended the session.
    """
    latency, captions = _Latency(), tutti.Transcript()
    console.print(f"\nStreaming {name} at the pace of speech:\n")
    try:
        async with tutti.connect(url, sample_rate=SAMPLE_RATE, language="en") as session:
            with Live(console=console, transient=True, refresh_per_second=12) as live:
                async with asyncio.TaskGroup() as tasks:
                    sender = tasks.create_task(_send(session, file, latency))
                    async for event in session:
                        latency.take(event)
                        captions.add(event)
                        match event:
                            case tutti.Segment():
                                live.console.print(segment_line(event.start_s, event.end_s, event.text), markup=False)
                            case tutti.Stopped():
                                stopped = event
                        live.update(_line(captions))
                    sender.cancel()
    except tutti.TuttiError as error:
        raise SessionError("demo", str(error)) from error
    console.print(
        f"\n{stopped.audio_s:.1f} s of audio, {stopped.words} words · first text {_median(latency.first_text_s)} after "
        f"speech began · final text {_median(latency.final_s)} after it ended (medians)"
    )


async def _send(session: tutti.Session, file: IO[bytes], latency: _Latency) -> None:
    begun = time.monotonic()
    n_sent = 0
    rest = np.zeros(0, dtype=np.float32)
    async with aclosing(decode_file(file)) as pieces:
        async for piece in pieces:
            rest = np.concatenate((rest, piece))
            while len(rest) >= CHUNK_SAMPLES:
                chunk, rest = rest[:CHUNK_SAMPLES], rest[CHUNK_SAMPLES:]
                n_sent += 1
                # A chunk exists only once its last sample has been spoken.
                await asyncio.sleep(begun + n_sent * CHUNK_MS / 1000 - time.monotonic())
                latency.note_sent()
                await session.send((chunk * 32767).astype("<i2").tobytes())
    await session.stop()


def _line(captions: tutti.Transcript) -> Text:
    """What is being heard and has not become a segment: what is stable as it is, the rest dimmed."""
    line = Text(overflow="fold")
    for caption in captions.open_captions():
        if caption.stable or caption.tail:
            line.append(f"{clock(caption.start_s)} …         ", "dim")
            line.append(caption.stable.lstrip() if not caption.final else caption.stable, "bold")
            line.append(caption.tail, "dim italic")
    return line


def _median(values: list[float]) -> str:
    return f"{float(np.median(values)):.2f} s" if values else "–"
