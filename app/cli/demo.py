"""`tutti demo`: streams recordings over a real WebSocket at the pace of speech, and shows their captions live."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import IO

import httpx
import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

import tutti
from tutti.terminal import connection_note
from tutti_server.app.errors import SessionError
from tutti_server.app.files.formats import clock, segment_line
from tutti_server.app.languages import NAMES
from tutti_server.app.media.file_decoder import decode_file
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

ASSETS = Path(__file__).parents[1] / "assets"
SAMPLE = ASSETS / "sample.flac"
SAMPLES = {"en": SAMPLE, "fr": ASSETS / "sample_fr.flac"}
"""The recordings of a demo without `--file`, in their order, by language."""
PAUSE_S = 1.0
"""The silence between two recordings, in seconds: it ends an utterance."""
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
        self._sent_at.append(time.monotonic())

    def event_received(self, event: tutti.Event) -> None:
        match event:
            case tutti.SpeechStarted():
                self._speech_sent_at[event.utterance] = self._clock_at(event.at_s)
            case tutti.Interim() | tutti.Segment() if event.utterance in self._speech_sent_at:
                self.first_text_s.append(time.monotonic() - self._speech_sent_at.pop(event.utterance))
            case tutti.Utterance():
                self.final_s.append(time.monotonic() - self._clock_at(event.end_s))

    def _clock_at(self, audio_s: float) -> float:
        return self._sent_at[min(int(audio_s * 1000) // CHUNK_MS, len(self._sent_at) - 1)]


async def known_samples(url: str) -> list[Path]:
    """The bundled recordings in the languages that the model of a server knows.

    Raises:
        SessionError: the server could not be reached, or does not name its languages.
    """
    try:
        async with httpx.AsyncClient() as client:
            answer = await client.get(_model_url(url))
            codes = {language["code"] for language in answer.raise_for_status().json()["languages"]}
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
        raise SessionError("demo", f"{url}: expected a tutti server that names its languages, got {error}") from error
    return [path for code, path in SAMPLES.items() if code in codes]


def _model_url(url: str) -> httpx.URL:
    """Return the address at which a server describes its model, from its address for streams."""
    stream = httpx.URL(url)
    path = stream.path.removesuffix("/v1/stream").rstrip("/") + "/page/model"
    return stream.copy_with(scheme={"ws": "http", "wss": "https"}.get(stream.scheme, stream.scheme), path=path)


async def run_demo(
    console: Console, url: str, files: Sequence[IO[bytes]], name: str, api_key: str | None = None
) -> None:
    """Stream recordings one after the other, show their captions, and print a line of figures at the end.

    The server detects the languages.

    Raises:
        MediaError: a recording cannot be decoded.
        SessionError: the server could not be reached, or ended the session.
    """
    latency, captions = _Latency(), tutti.Transcript()
    language: str | None = None
    try:
        async with tutti.connect(
            url, sample_rate=SAMPLE_RATE, api_key=api_key, resume_timeout_s=RESUME_TIMEOUT_S
        ) as session:
            console.print(f"\nStreaming {name} to {session.started.model} at the pace of speech:", markup=False)
            with Live(console=console, transient=True, refresh_per_second=12) as live:
                async with asyncio.TaskGroup() as tasks:
                    sender = tasks.create_task(_send(session, files, latency))
                    async for event in session:
                        latency.event_received(event)
                        captions.add(event)
                        match event:
                            case tutti.Segment():
                                if event.language not in (None, language):
                                    language = event.language
                                    live.console.print(
                                        f"\n{NAMES.get(event.language, event.language).title()}", style="dim"
                                    )
                                times = segment_line(event.start_s, event.end_s, "")
                                live.console.print(_lines([(Text(times), Text(event.text.strip()))], len(times)))
                            case tutti.Reconnecting() | tutti.Resumed():
                                live.console.print(connection_note(event), style="dim", markup=False)
                            case tutti.Stopped():
                                stopped = event
                        live.update(caption_lines(captions))
                    sender.cancel()
    except* tutti.TuttiError as group:
        raise SessionError("demo", str(group.exceptions[0])) from group
    console.print(
        f"\n{stopped.audio_s:.1f} s of audio, {stopped.words} words · first text {_median(latency.first_text_s)} after "
        f"speech began · final text {_median(latency.final_s)} after it ended (medians)"
    )


async def _send(session: tutti.Session, files: Sequence[IO[bytes]], latency: _Latency) -> None:
    started = time.monotonic()
    n_sent = 0
    async with aclosing(_chunks(files)) as chunks:
        async for chunk in chunks:
            n_sent += len(chunk)
            # A chunk is complete when its last sample has been spoken.
            await asyncio.sleep(started + n_sent / SAMPLE_RATE - time.monotonic())
            latency.audio_sent()
            await session.send((chunk.clip(-1, 1) * 32767).astype("<i2").tobytes())
    await session.stop()


async def _chunks(files: Sequence[IO[bytes]]) -> AsyncGenerator[Samples, None]:
    """The audio of recordings one after the other, in pieces of `CHUNK_SAMPLES`; the last one may be shorter."""
    rest = np.zeros(0, dtype=np.float32)
    for index, file in enumerate(files):
        if index > 0:
            rest = np.concatenate((rest, np.zeros(round(PAUSE_S * SAMPLE_RATE), np.float32)))
        async with aclosing(decode_file(file)) as pieces:
            async for piece in pieces:
                rest = np.concatenate((rest, piece))
                while len(rest) >= CHUNK_SAMPLES:
                    yield rest[:CHUNK_SAMPLES]
                    rest = rest[CHUNK_SAMPLES:]
    if len(rest):
        yield rest


def caption_lines(captions: tutti.Transcript) -> Table:
    """The open captions: stable text in bold, text that may change dimmed."""
    rows: list[tuple[Text, Text]] = []
    width = 0
    for caption in captions.open_captions():
        if caption.stable or caption.tail:
            # The text begins in the column in which the text of its final line will begin.
            width = max(width, len(segment_line(caption.start_s, caption.start_s, "")))
            text = Text(caption.stable.lstrip() if not caption.final else caption.stable, "bold")
            rows.append((Text(f"{clock(caption.start_s)} …", "dim"), text.append(caption.tail, "dim italic")))
    return _lines(rows, width)


def _lines(rows: Sequence[tuple[Text, Text]], width: int) -> Table:
    """Times with their texts. A long text goes on in the column in which it began."""
    lines = Table.grid()
    lines.add_column(width=width, no_wrap=True)
    lines.add_column(overflow="fold")
    for times, text in rows:
        lines.add_row(times, text)
    return lines


def _median(values: list[float]) -> str:
    return f"{float(np.median(values)):.2f} s" if values else "–"
