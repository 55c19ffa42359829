"""`tutti transcribe`: several recordings at a time share the batches of one engine."""

import asyncio
import math
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tutti_server.app.cli.recordings import Recording, opened_output
from tutti_server.app.cli.terminal import console
from tutti_server.app.errors import MediaError, SessionError
from tutti_server.app.files.formats import HEADED, Layout, TranscriptWriter, clock
from tutti_server.app.files.transcription import session_config, transcribe
from tutti_server.app.files.transcription_options import TranscriptionOptions
from tutti_server.app.media.file_decoder import FileInfo, decode_file, languages_of_tracks, n_channels, probe
from tutti_server.app.media.pcm import AudioFormat, Samples
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.engine_driver import MAX_BACKLOG
from tutti_server.app.session.messages import events
from tutti_server.engine import api

MAX_OPEN_WINDOWS = 64
"""Recordings are begun until they may have this many windows in the engine, or as many as it has slots.

More at a time would not fill larger batches, and their transcripts would be complete later.
"""

FIELD = "file: "
"""How messages about a file begin: with the name of the HTTP form's field, which a command line does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is done with each recording."""

    config: SessionConfig
    options: TranscriptionOptions
    layout: Layout
    track: str | None = None
    """Which audio track of each recording; see `choose_track`."""

    @property
    def file_options(self) -> TranscriptionOptions:
        """How a recording is decoded. All but plain text has times, which are those of words."""
        return replace(self.options, words=self.layout.format != "txt")

    def heading(self, model: api.ModelInfo) -> str:
        """What decodes the recordings: the model, its numbers and the beams."""
        n_beams = session_config(self.config, self.options, model).beam_size
        beams = "1 beam" if n_beams == 1 else f"{n_beams} beams"
        return f"{Path(model.name).name}: {model.dtype} on {model.device}, {beams}"


@dataclass(frozen=True, slots=True)
class Input:
    """A recording, what its file states, and where its transcript goes."""

    recording: Recording
    info: FileInfo | None
    """`None` for a pipe, which cannot be read twice."""
    output: Path | None
    """`None` for the standard output."""

    @property
    def expected_s(self) -> float | None:
        """The length of the recording in seconds, if its file states one."""
        return (self.info.audio_s or self.info.duration_s) if self.info else None

    def most_windows(self, carries_context: bool) -> int:
        """How many of its windows may be in the engine at the same time."""
        if carries_context:
            return 1
        return math.ceil(min(MAX_BACKLOG, (self.expected_s or math.inf) / api.WINDOW_S))


def prepare(
    recordings: Sequence[Recording], outputs: Sequence[Path | None], track: str | None = None
) -> tuple[list[Input], list[str]]:
    """Read what the files state, before a model is loaded for them.

    Returns:
        the recordings that can be transcribed, and a sentence for each of the others.
    """
    ready: list[Input] = []
    unreadable: list[str] = []
    for recording, output in zip(recordings, outputs, strict=True):
        try:
            ready.append(Input(recording, _stated(recording, _track(recording, track)), output))
        except MediaError as error:
            unreadable.append(f"{recording.name}: {_without_field(error)}")
        except OSError as error:
            unreadable.append(f"{recording.name}: {error.strerror}")
    return ready, unreadable


def all_tracks(recordings: Sequence[Recording]) -> tuple[list[Recording], list[str]]:
    """Each audio track of these recordings, as a recording of its own.

    Returns:
        the tracks, and a sentence for each recording whose tracks cannot be known.
    """
    found: list[Recording] = []
    problems: list[str] = []
    for recording in recordings:
        if recording.path is None or not recording.path.is_file():
            problems.append(f"{recording.name}: expected a file with --tracks all, got a pipe, which is read only once")
            continue
        try:
            with recording.opened() as file:
                languages = languages_of_tracks(file)
        except MediaError as error:
            problems.append(f"{recording.name}: {_without_field(error)}")
        except OSError as error:
            problems.append(f"{recording.name}: {error.strerror}")
        else:
            found += [recording.of_track(number, language) for number, language in enumerate(languages)]
    return found, problems


def _track(recording: Recording, track: str | None) -> str | None:
    """The track of a recording that is decoded; see `choose_track`."""
    return track if recording.track is None else str(recording.track)


def _stated(recording: Recording, track: str | None) -> FileInfo | None:
    """What the file states; `None` for a pipe, which can be read once only."""
    if recording.path is None or not recording.path.is_file():
        return None
    with recording.opened() as file:
        return probe(file, track)


def _without_field(error: MediaError) -> str:
    return str(error).removeprefix(FIELD)


async def transcribe_all(transcriber: api.Transcriber, inputs: Sequence[Input], job: Job) -> int:
    """Transcribe recordings, several at a time, and write each transcript as it becomes ready.

    The error stream shows the progress if it is a terminal, and names each recording that fails.

    Returns:
        how many recordings failed.

    Raises:
        SessionError: the model does not support an option, or the engine has died.
        OSError: the standard output cannot be written.
    """
    n_windows = min(MAX_OPEN_WINDOWS, transcriber.info.n_slots)
    room = asyncio.Semaphore(n_windows)
    with _Display.opened(inputs, job.heading(transcriber.info)) as display:
        outputs = _StandardOutput(inputs, job.layout)
        work = _Work(transcriber=transcriber, job=job, display=display, outputs=outputs)

        async def transcribe_one(number: int, taken: int) -> None:
            try:
                await work.transcribe(number, inputs[number])
            finally:
                for _ in range(taken):
                    room.release()

        async with asyncio.TaskGroup() as tasks:
            for number, each in enumerate(inputs):
                wanted = min(each.most_windows(job.options.carries_context), n_windows)
                for _ in range(wanted):
                    await room.acquire()
                tasks.create_task(transcribe_one(number, wanted))
    return work.n_failed


@dataclass(slots=True, kw_only=True)
class _Work:
    transcriber: api.Transcriber
    job: Job
    display: "_Display"
    outputs: "_StandardOutput"
    n_failed: int = 0

    async def transcribe(self, number: int, each: Input) -> None:
        """Transcribe one recording. Its failure is reported and counted, unless it concerns all of them."""
        try:
            if each.output is None:
                await self._transcribe(each, lambda text: self.outputs.write(number, text), number)
            else:
                with opened_output(each.output) as file:
                    await self._transcribe(each, partial(_write, file), number)
        except MediaError as error:
            self._report(each, _without_field(error))
        except SessionError as error:
            if error.code == "bad_start" or not self.transcriber.is_alive:
                raise
            self._report(each, str(error))
        except OSError as error:
            if each.output is None:
                raise
            self._report(each, f"cannot write {each.output}: {error.strerror}")
        finally:
            self.display.advance(number, each.expected_s or 0.0)
        self.outputs.close(number)

    async def _transcribe(self, each: Input, write: Callable[[str], None], number: int) -> None:
        with ExitStack() as stack:
            file, n_kept = await asyncio.to_thread(self._open, stack, each)
            options = self.job.file_options
            if n_kept is not None:
                options = replace(options, audio=AudioFormat("pcm_f32le", channels=n_kept))
            writer = TranscriptWriter(write, self.job.layout, each.recording.name)

            def note_progress(until_s: float) -> None:
                writer.advance(until_s)
                self.display.advance(number, until_s)

            def note(notice: events.Notice) -> None:
                writer.add(notice)
                self.display.report(f"{each.recording.name}: {notice.message.removeprefix(FIELD)}")

            try:
                pieces = decode_file(file, n_kept, note, _track(each.recording, self.job.track))
                async with aclosing(_read(pieces)) as audio:
                    await transcribe(
                        self.transcriber,
                        audio,
                        writer.add,
                        session_id=each.recording.name,
                        config=self.job.config,
                        options=options,
                        on_progress=note_progress,
                    )
            except MediaError as error:
                hint = "" if file.seekable() else "; it comes from a pipe: save it to a file first, and try that"
                raise MediaError(f"{error}{hint}") from error
            writer.finish()
        self.display.note_end(writer.audio_s)

    def _open(self, stack: ExitStack, each: Input) -> tuple[BinaryIO, int | None]:
        """Open the recording, and count channels that are kept apart. Runs in a thread, as a pipe may stay empty."""
        has_channels = self.job.layout.has_channels
        with _reading():
            file = stack.enter_context(each.recording.opened(is_searched=has_channels))
            return file, n_channels(file, _track(each.recording, self.job.track)) if has_channels else None

    def _report(self, each: Input, message: str) -> None:
        self.n_failed += 1
        self.display.report(f"Error: {each.recording.name}: {message}")


@contextmanager
def _reading() -> Iterator[None]:
    """Tell an error of a recording's file from one of an output: raises `MediaError` for the first."""
    try:
        yield
    except OSError as error:
        raise MediaError(f"cannot be read: {error.strerror}") from error


async def _read(pieces: AsyncGenerator[Samples, None]) -> AsyncGenerator[Samples, None]:
    """Pass on the pieces of a recording; see `_reading`."""
    with _reading():
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece


def _write(file: IO[str], text: str) -> None:
    """Write text so that others can read it at once."""
    file.write(text)
    file.flush()


class _StandardOutput:
    """Writes transcripts to the standard output in the order of their recordings, the present one as it grows."""

    def __init__(self, inputs: Sequence[Input], layout: Layout) -> None:
        self._waiting: list[list[str]] = [[] for _ in inputs]
        """The text of each recording that is not written yet."""
        self._is_closed = [False] * len(inputs)
        self._present = 0
        """The number of the recording whose turn it is."""
        if sum(each.output is None for each in inputs) > 1 and layout.format in HEADED:
            self._waiting = [["\n", f"==> {each.recording.name} <==\n"] for each in inputs]
            # No empty line before the first one.
            self._waiting[0] = self._waiting[0][1:]

    def write(self, number: int, text: str) -> None:
        """Write text of a recording, now or when it is its turn."""
        self._waiting[number].append(text)
        self._flush()

    def close(self, number: int) -> None:
        self._is_closed[number] = True
        self._flush()

    def _flush(self) -> None:
        while self._present < len(self._waiting):
            text, self._waiting[self._present] = "".join(self._waiting[self._present]), []
            if text:
                sys.stdout.write(text)
            if not self._is_closed[self._present]:
                break
            self._present += 1
        # A terminal shows whole lines by itself, and a progress bar below them would break an incomplete one.
        if not sys.stdout.isatty():
            sys.stdout.flush()


class _Display:
    """One bar for all recordings, reports above it and a line of figures at the end, on the error stream."""

    def __init__(self, inputs: Sequence[Input], err: Console, progress: Progress) -> None:
        self._err = err
        self._progress = progress
        self._reached_s = [0.0] * len(inputs)
        """How far each recording is transcribed, in seconds."""
        self._n_ended = 0
        self._audio_s = 0.0
        expected_s = [each.expected_s for each in inputs]
        total_s = sum(each for each in expected_s if each is not None) if None not in expected_s else None
        self._bar = progress.add_task(self._title, total=total_s, reached=clock(0.0))

    @classmethod
    @contextmanager
    def opened(cls, inputs: Sequence[Input], heading: str) -> Iterator["_Display"]:
        """Show the progress below a heading while the context is open. Only a terminal has more than reports."""
        err = console(stderr=True, soft_wrap=True)
        if err.is_terminal:
            err.print(f"[dim]{escape(heading)}[/]")
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[reached]}"),
            TimeRemainingColumn(),
        )
        started = time.perf_counter()
        # Output that is piped to another program must not be printed above the bar.
        redirect = sys.stdout.isatty()
        with Progress(
            *columns, console=err, transient=True, disable=not err.is_terminal, redirect_stdout=redirect
        ) as progress:
            display = cls(inputs, err, progress)
            yield display
        if err.is_terminal and display._n_ended:
            took_s = time.perf_counter() - started
            err.print(
                f"[dim]{clock(display._audio_s)} of audio in {clock(took_s)}, "
                f"{display._audio_s / took_s:.1f} x real time[/]"
            )

    @property
    def _title(self) -> str:
        n_inputs = len(self._reached_s)
        return "Transcribing" if n_inputs == 1 else f"Transcribed {self._n_ended} of {n_inputs}"

    def advance(self, number: int, until_s: float) -> None:
        """Show that a recording is transcribed up to this time, in seconds."""
        self._reached_s[number] = max(until_s, self._reached_s[number])
        reached_s = sum(self._reached_s)
        self._progress.update(self._bar, description=self._title, completed=reached_s, reached=clock(reached_s))

    def note_end(self, audio_s: float) -> None:
        self._n_ended += 1
        self._audio_s += audio_s

    def report(self, message: str) -> None:
        self._err.print(message, markup=False)
