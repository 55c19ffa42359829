"""What the command line prints: transcripts with their progress, the banner of a server, the list of models."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from app.files.subtitles import cues, srt, vtt
from app.files.transcript import Transcript
from app.files.transcription import TranscriptionOptions, transcribe
from app.media.file_decoder import decode_file, duration_s
from app.service.settings import Settings
from app.session import events
from app.session.session import SessionConfig
from app.version import VERSION
from engine import api
from engine.checkpoint.catalog import EMBEDDED_MODEL, KNOWN_MODELS

SUBTITLE_FORMATS = {"srt": srt, "vtt": vtt}
LOOPBACK_OF_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""An address that can be opened on this machine, for a server that listens on all addresses."""
MISSING_SHARE = 0.05
"""A file is reported as cut off if more than this share of the length in its header is missing.

Smaller differences are normal: containers round their length or estimate it.
"""


def console(*, stderr: bool = False, soft_wrap: bool = False) -> Console:
    """A console that prints text as it is, without highlighting or emoji."""
    return Console(highlight=False, emoji=False, stderr=stderr, soft_wrap=soft_wrap)


async def print_transcript(
    transcriber: api.Transcriber,
    file: IO[bytes],
    output: str,
    config: SessionConfig,
    options: TranscriptionOptions,
) -> None:
    """Transcribe a file and print it. The error stream shows progress if it is a terminal.

    Args:
        transcriber: the engine.
        file: an audio file in any format that FFmpeg decodes.
        output: one of `OUTPUT_FORMATS` of `app/cli/commands.py`.
        config: the operator's configuration of sessions.
        options: how to decode. Subtitles get the times of their words in any case.

    Raises:
        MediaError: the file cannot be decoded.
        SessionError: the model does not support an option, or the engine failed.
    """
    if output in SUBTITLE_FORMATS:
        options = replace(options, words=True)
    transcript = Transcript()
    out, err = console(soft_wrap=True), console(stderr=True, soft_wrap=True)
    expected_s = duration_s(file)
    started = time.perf_counter()

    def add(event: events.Event) -> None:
        transcript.add(event)
        if isinstance(event, events.Segment) and output == "segments":
            out.print(segment_line(event.start_s, event.end_s, event.text), markup=False)

    with _progress_bar(err, expected_s) as show_progress:
        async with aclosing(decode_file(file)) as audio:
            await transcribe(
                transcriber, audio, add, session_id="file", config=config, options=options, on_progress=show_progress
            )
    took_s = time.perf_counter() - started
    _print_result(out, transcript, output)
    audio_s = transcript.audio_s
    if expected_s and audio_s < expected_s * (1 - MISSING_SHARE):
        err.print(
            f"The audio ends at {clock(audio_s)}, but the file says that it lasts {clock(expected_s)}: is it cut off?"
        )
    if err.is_terminal:
        err.print(f"[dim]{clock(audio_s)} of audio in {clock(took_s)}, {audio_s / took_s:.1f} x real time[/]")


@contextmanager
def _progress_bar(err: Console, total_s: float | None) -> Iterator[Callable[[float], None]]:
    """A bar on the error stream; invisible if that is not a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[reached]}"),
        TimeRemainingColumn(),
    )
    # Output that is piped to another program must not be printed above the bar.
    redirect = sys.stdout.isatty()
    with Progress(
        *columns, console=err, transient=True, disable=not err.is_terminal, redirect_stdout=redirect
    ) as progress:
        bar = progress.add_task("Transcribing", total=total_s, reached=clock(0.0))
        yield lambda until_s: progress.update(bar, completed=until_s, reached=clock(until_s))


def _print_result(out: Console, transcript: Transcript, output: str) -> None:
    """Print a complete transcript. Segments have been printed while they were decoded."""
    if output == "text":
        out.print(transcript.text, markup=False)
    elif output == "json":
        out.print(json.dumps(_as_json(transcript), ensure_ascii=False, indent=2), markup=False)
    elif output in SUBTITLE_FORMATS:
        out.print(SUBTITLE_FORMATS[output](cues(transcript.segments)), markup=False, end="")


def _as_json(transcript: Transcript) -> dict[str, object]:
    return {
        "text": transcript.text,
        "language": transcript.language,
        "audio_s": transcript.audio_s,
        "segments": [{"start_s": each.start_s, "end_s": each.end_s, "text": each.text} for each in transcript.segments],
        "uncovered": transcript.uncovered,
    }


def banner(settings: Settings, model: api.ModelInfo, port: int) -> str:
    """What a server prints when it is ready: its version, its model and its addresses."""
    host = LOOPBACK_OF_ANY.get(settings.host, settings.host)
    host = f"[{host}]" if ":" in host else host
    secure = "s" if settings.is_encrypted else ""
    lines = [
        f"[bold]tutti[/] {VERSION} · model [bold]{model.name}[/] "
        f"({model.n_parameters / 1e6:.1f} M parameters, {model.dtype} on {model.device}, {model.n_slots} slots)",
        f"  captions   http{secure}://{host}:{port}/",
        f"  live       ws{secure}://{host}:{port}/v1/stream",
        f"  files      http{secure}://{host}:{port}/v1/audio/transcriptions",
        f"  metrics    http{secure}://{host}:{port}/metrics",
    ]
    if settings.host in LOOPBACK_OF_ANY:
        lines.append(f"[dim]  The server listens on every address of this machine ({settings.host}).[/]")
    if model.name == EMBEDDED_MODEL:
        lines.append(
            "[dim]  The embedded demo model transcribes synthetic English voices only. For real speech, choose one of "
            "`tutti models`.[/]"
        )
    return "\n".join(lines)


def print_models(out: Console) -> None:
    """Print the models that have a name of their own."""
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "parameters", "about"):
        table.add_column(heading, justify="right" if heading == "parameters" else "left")
    for model in KNOWN_MODELS:
        table.add_row(model.name, f"{model.n_parameters_m} M", model.about)
    out.print(table)
    out.print(
        "\nA name with a slash is downloaded from the Hugging Face hub once, and kept in ~/.cache/huggingface. "
        "owner/name@revision names a branch, a tag or a commit. Any other Whisper checkpoint in the Hugging Face "
        "layout works as well, from the hub or in a folder.",
        markup=False,
    )


def segment_line(start_s: float, end_s: float, text: str) -> str:
    """One line with the times and the text of a segment."""
    return f"{clock(start_s)} – {clock(end_s)}  {text.strip()}"


def clock(seconds: float) -> str:
    """A time as minutes and seconds, with hours if there are any."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest:05.2f}" if hours else f"{minutes:02d}:{rest:05.2f}"
