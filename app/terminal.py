"""What the command line shows of a transcription: progress while it runs, then its text."""

import json
from contextlib import aclosing
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from app import events
from app.media import decode_file, duration_s
from app.session import SessionConfig
from app.transcription import Transcript, transcribe
from engine import api

FORMATS = ("text", "segments", "json")


async def print_transcript(
    transcriber: api.Transcriber,
    file: IO[bytes],
    output: str,
    config: SessionConfig,
    language: str | None,
    prompt: str,
) -> None:
    """Transcribe a file and print it; progress goes to the error stream, so that the output can be piped.

    Raises:
        MediaError: the file cannot be decoded.
        SessionError: the model cannot honour an option, or the engine failed.
    """
    transcript = Transcript()
    out = Console(highlight=False, emoji=False, soft_wrap=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("Transcribing", total=duration_s(file))

        def take(event: events.Event) -> None:
            transcript.take(event)
            if isinstance(event, events.Segment):
                progress.update(bar, completed=event.end_s)
                if output == "segments":
                    out.print(segment_line(event.start_s, event.end_s, event.text), markup=False)

        async with aclosing(decode_file(file)) as audio:
            await transcribe(
                transcriber, audio, take, session_id="file", config=config, language=language, prompt=prompt
            )
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


def segment_line(start_s: float, end_s: float, text: str) -> str:
    return f"{clock(start_s)} – {clock(end_s)}  {text.strip()}"


def clock(seconds: float) -> str:
    """Minutes and seconds, and hours once there are any."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest:05.2f}" if hours else f"{minutes:02d}:{rest:05.2f}"
