"""`tutti demo`: streams a recording over a real WebSocket at the pace of speech, and shows its captions live."""

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
from app.errors import SessionError
from app.files.formats import clock, segment_line
from app.media.file_decoder import decode_file
from engine.api import SAMPLE_RATE
from tutti.terminal import connection_note

SAMPLE = Path(__file__).parents[1] / "assets" / "sample.flac"
"""The recording of a demo without `--file`."""
CHUNK_MS = 100
"""The length of one audio message, in milliseconds."""
CHUNK_SAMPLES = SAMPLE_RATE * CHUNK_MS // 1000
RESUME_TIMEOUT_S = 20.0
"""How long a lost connection may stay lost, in seconds: a restart of a server takes less."""


class _Latency:
    """Measures how long text takes, counted from the sending of its audio."""

    def __init__(self) -> None:
        self._sent_at: list[float] = []
        """The clock time at which each chunk was sent, in seconds."""
        self._speech_sent_at: dict[int, float] = {}
        """The clock time at which the first speech of each utterance was sent; only utterances without text."""
        self.first_text_s: list[float] = []
        """The time from the first speech of each utterance to its first text, in seconds."""
        self.final_s: list[float] = []
        """The time from the end of each utterance to its final text, in seconds."""

    def audio_sent(self) -> None:
        """Note that the next chunk is sent now."""
        self._sent_at.append(time.monotonic())

    def event_received(self, event: tutti.Event) -> None:
        """Measure the times that end with this event."""
        match event:
            case tutti.SpeechStarted():
                self._speech_sent_at[event.utterance] = self._clock_at(event.at_s)
            case tutti.Interim() | tutti.Segment() if event.utterance in self._speech_sent_at:
                self.first_text_s.append(time.monotonic() - self._speech_sent_at.pop(event.utterance))
            case tutti.Utterance():
                self.final_s.append(time.monotonic() - self._clock_at(event.end_s))

    def _clock_at(self, audio_s: float) -> float:
        """The clock time at which the chunk that contains this moment was sent."""
        return self._sent_at[min(int(audio_s * 1000) // CHUNK_MS, len(self._sent_at) - 1)]


async def run_demo(console: Console, url: str, file: IO[bytes], name: str, api_key: str | None = None) -> None:
    """Stream the recording, show its captions, and print a line of figures at the end.

    Args:
        console: where captions are shown.
        url: the address of the server.
        file: the recording, in any format that FFmpeg decodes.
        name: what the recording is called.
        api_key: the key that the server asks for, if it asks for one.

    Raises:
        MediaError: the recording cannot be decoded.
        SessionError: the server could not be reached, or ended the session.
    """
    latency, captions = _Latency(), tutti.Transcript()
    console.print(f"\nStreaming {name} at the pace of speech:\n")
    try:
        async with tutti.connect(
            url, sample_rate=SAMPLE_RATE, language="en", api_key=api_key, resume_timeout_s=RESUME_TIMEOUT_S
        ) as session:
            with Live(console=console, transient=True, refresh_per_second=12) as live:
                async with asyncio.TaskGroup() as tasks:
                    sender = tasks.create_task(_send(session, file, latency))
                    async for event in session:
                        latency.event_received(event)
                        captions.add(event)
                        match event:
                            case tutti.Segment():
                                live.console.print(segment_line(event.start_s, event.end_s, event.text), markup=False)
                            case tutti.Reconnecting() | tutti.Resumed():
                                live.console.print(connection_note(event), style="dim", markup=False)
                            case tutti.Stopped():
                                stopped = event
                        live.update(caption_line(captions))
                    sender.cancel()
    except* tutti.TuttiError as group:
        raise SessionError("demo", str(group.exceptions[0])) from group
    console.print(
        f"\n{stopped.audio_s:.1f} s of audio, {stopped.words} words · first text {_median(latency.first_text_s)} after "
        f"speech began · final text {_median(latency.final_s)} after it ended (medians)"
    )


async def _send(session: tutti.Session, file: IO[bytes], latency: _Latency) -> None:
    started = time.monotonic()
    n_sent = 0
    rest = np.zeros(0, dtype=np.float32)
    async with aclosing(decode_file(file)) as pieces:
        async for piece in pieces:
            rest = np.concatenate((rest, piece))
            while len(rest) >= CHUNK_SAMPLES:
                chunk, rest = rest[:CHUNK_SAMPLES], rest[CHUNK_SAMPLES:]
                n_sent += 1
                # A chunk is complete when its last sample has been spoken.
                await asyncio.sleep(started + n_sent * CHUNK_MS / 1000 - time.monotonic())
                latency.audio_sent()
                await session.send((chunk * 32767).astype("<i2").tobytes())
    await session.stop()


def caption_line(captions: tutti.Transcript) -> Text:
    """The open captions: stable text in bold, text that may change dimmed."""
    line = Text(overflow="fold")
    for caption in captions.open_captions():
        if caption.stable or caption.tail:
            # The text begins in the column in which the text of its final line will begin.
            times = segment_line(caption.start_s, caption.start_s, "")
            line.append(f"{clock(caption.start_s)} …".ljust(len(times)), "dim")
            line.append(caption.stable.lstrip() if not caption.final else caption.stable, "bold")
            line.append(caption.tail, "dim italic")
    return line


def _median(values: list[float]) -> str:
    return f"{float(np.median(values)):.2f} s" if values else "–"
