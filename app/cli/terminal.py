"""What the command line shows of a transcription: progress while it runs, then its text."""

import json
import sys
import time
from contextlib import aclosing
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from app.files.subtitles import cues, srt, vtt
from app.files.transcript import Transcript
from app.files.transcription import transcribe
from app.media.file_decoder import decode_file, duration_s
from app.session import events
from app.session.session import SessionConfig
from engine import api

FORMATS = ("text", "segments", "json", "srt", "vtt")
# Containers round the length that they name, or estimate it; more missing than this share of it is worth a word.
MISSING_SHARE = 0.05


async def print_transcript(
    transcriber: api.Transcriber,
    file: IO[bytes],
    output: str,
    config: SessionConfig,
    language: str | None,
    prompt: str,
    *,
    carries_context: bool = False,
    temperature: float = 0.0,
) -> None:
    """Transcribe a file and print it. Progress goes to the error stream if that is a terminal, and nothing otherwise.

    Raises:
        MediaError: the file cannot be decoded.
        SessionError: the model cannot honour an option, or the engine failed.
    """
    transcript = Transcript()
    out = Console(highlight=False, emoji=False, soft_wrap=True)
    err = Console(highlight=False, emoji=False, soft_wrap=True, stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[reached]}"),
        TimeRemainingColumn(),
    )
    length_s = duration_s(file)
    started_s = time.perf_counter()
    # Output that is piped elsewhere must not be drawn above the bar.
    with Progress(
        *columns, console=err, transient=True, disable=not err.is_terminal, redirect_stdout=sys.stdout.isatty()
    ) as progress:
        bar = progress.add_task("Transcribing", total=length_s, reached=clock(0.0))

        def take(event: events.Event) -> None:
            transcript.take(event)
            if isinstance(event, events.Segment) and output == "segments":
                out.print(segment_line(event.start_s, event.end_s, event.text), markup=False)

        def show_progress(final_until_s: float) -> None:
            progress.update(bar, completed=final_until_s, reached=clock(final_until_s))

        async with aclosing(decode_file(file)) as audio:
            await transcribe(
                transcriber,
                audio,
                take,
                session_id="file",
                config=config,
                language=language,
                prompt=prompt,
                words=output in ("srt", "vtt"),
                temperature=temperature,
                carries_context=carries_context,
                on_progress=show_progress,
            )
    took_s = time.perf_counter() - started_s
    if output == "text":
        out.print(transcript.text, markup=False)
    elif output == "json":
        segments = [{"start_s": s.start_s, "end_s": s.end_s, "text": s.text} for s in transcript.segments]
        body = {
            "text": transcript.text,
            "language": transcript.language,
            "audio_s": transcript.audio_s,
            "segments": segments,
            "uncovered": transcript.uncovered,
        }
        out.print(json.dumps(body, ensure_ascii=False, indent=2), markup=False)
    elif output in ("srt", "vtt"):
        write = srt if output == "srt" else vtt
        out.print(write(cues(transcript.segments)), markup=False, end="")
    audio_s = transcript.audio_s
    if length_s and audio_s < length_s * (1 - MISSING_SHARE):
        err.print(
            f"The audio ends at {clock(audio_s)}, but the file says that it lasts {clock(length_s)}: is it cut off?"
        )
    if err.is_terminal:
        err.print(f"[dim]{clock(audio_s)} of audio in {clock(took_s)}, {audio_s / took_s:.1f} x real time[/]")


def segment_line(start_s: float, end_s: float, text: str) -> str:
    return f"{clock(start_s)} – {clock(end_s)}  {text.strip()}"


def clock(seconds: float) -> str:
    """Minutes and seconds, and hours once there are any."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest:05.2f}" if hours else f"{minutes:02d}:{rest:05.2f}"
