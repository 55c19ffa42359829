"""The command line: sends a file, standard input or the microphone, and writes captions."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import shutil
import signal
import ssl
import sys
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager
from pathlib import Path

import tutti
from tutti.audio import Pace, WavFile, paced, read_chunks
from tutti.errors import AudioError, BadOption, TuttiError, Unauthorized, Unreachable
from tutti.messages import (
    BYTES_PER_SAMPLE,
    AudioFormat,
    ErrorEvent,
    Event,
    Lag,
    Reconnecting,
    Resumed,
    ServerWarning,
    event_to_wire,
)
from tutti.options import ConnectOptions, FileProgress, SessionOptions
from tutti.recording import MICROPHONE_FORMAT, find_recorder, read_stdin, record
from tutti.session import Session, connect, transcribe_file
from tutti.terminal import CLEAR_LINE, CaptionLines, connection_note, describe_progress

DEFAULT_URL = "ws://127.0.0.1:8000"

EXIT_FAILED = 1
"""Exit status after a session that failed."""
EXIT_USAGE = 2
"""Exit status when the arguments are wrong."""
EXIT_INTERRUPTED = 130
"""Exit status after a second Ctrl-C: 128 and the number of SIGINT, as shells do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        the exit status: 0, or one of the `EXIT_` constants.
    """
    parser = _make_parser()
    args = parser.parse_args(argv)
    _check(parser, args)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal whose encoding lacks a letter shows "?" in its place. Without this, the captions would end there.
        sys.stdout.reconfigure(errors="replace")
    try:
        asyncio.run(_interruptible(_run(args)))
    except (BadOption, AudioError) as error:
        return _print_error(error, EXIT_USAGE)
    except (TuttiError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # The program that read our output has ended. Python flushes the output at exit, which must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_FAILED
        is_file_error = isinstance(error, OSError) and error.filename == str(Path(args.source))
        return _print_error(error, EXIT_USAGE if is_file_error else EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


async def _interruptible(work: Coroutine[object, object, None]) -> None:
    """Run `work`. An error that it raises while Ctrl-C cancels it counts as the cancellation."""
    try:
        await work
    except Exception as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from error
        raise


def _print_error(error: Exception, exit_code: int) -> int:
    match error:
        case Unauthorized():
            hint = "; pass --api-key or set TUTTI_API_KEY"
        case Unreachable() if "CERTIFICATE_VERIFY_FAILED" in error.reason:
            hint = "; name the certificate of a private authority with --ca-file"
        case Unreachable():
            hint = "; is the server running there? Start one with `tutti serve`, or pass --url"
        case _:
            hint = ""
    sys.stderr.write(f"tutti: {error}{hint}\n")
    return exit_code


def _make_parser() -> argparse.ArgumentParser:
    started_as = Path(sys.argv[0]).name
    prog = "python -m tutti" if started_as == "__main__.py" else started_as
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument(
        "source",
        metavar="FILE|-|mic",
        help="a file of any audio or video format, - for raw audio on standard input, or mic",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {tutti.__version__}")
    parser.add_argument("--url", type=utf8, default=DEFAULT_URL, help="the server's URL (default: %(default)s)")
    parser.add_argument("--api-key", help="the server's API key (default: the environment variable TUTTI_API_KEY)")
    parser.add_argument("--ca-file", metavar="PEM", help="certificates to trust on wss:// instead of the system's")
    parser.add_argument("--language", type=utf8, help='code such as "en" (default: detected for every utterance)')
    parser.add_argument("--task", choices=["transcribe", "translate"], default="transcribe")
    parser.add_argument(
        "--prompt", type=utf8, default="", help="text that the speech may follow on from, or names that it may contain"
    )
    speed = parser.add_mutually_exclusive_group()
    speed.add_argument(
        "--speed",
        type=float,
        metavar="X",
        help="stream at X times real time (default: a file is uploaded, other audio is sent as fast as allowed)",
    )
    speed.add_argument(
        "--realtime", action="store_const", dest="speed", const=1.0, help="the same as --speed 1: stream a WAV file"
    )
    raw = parser.add_argument_group("raw audio on standard input")
    raw.add_argument("--encoding", choices=list(BYTES_PER_SAMPLE), help="default: pcm_s16le")
    raw.add_argument("--rate", type=int, help="samples per second and channel (default: 16000)")
    raw.add_argument("--channels", type=int, help="default: 1")
    parser.add_argument("--json", action="store_true", help="write every event as a line of JSON")
    return parser


def utf8(argument: str) -> str:
    """An argument that is sent to the server. The usage names this function where its bytes are no text."""
    argument.encode()
    return argument


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if args.source != "-" and (args.encoding, args.rate, args.channels) != (None, None, None):
        parser.error("--encoding, --rate and --channels are for raw audio on standard input (-)")
    if args.source == "mic" and args.speed is not None:
        parser.error("--speed and --realtime are not for mic: it always records in real time")
    if args.ca_file is not None and not args.url.lower().startswith(("wss:", "https:")):
        parser.error(f"--ca-file is for wss:// and https://, not for {args.url}")
    if args.speed is not None and not args.speed > 0:
        parser.error(f"--speed: expected a number above 0, got {args.speed:g}")
    if (args.rate is not None and args.rate <= 0) or (args.channels is not None and args.channels <= 0):
        parser.error("--rate and --channels: expected a number above 0")


def _read_ca_file(path: str | None) -> ssl.SSLContext | None:
    if path is None:
        return None
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        # An `SSLError` is an `OSError` too: the file exists, but has no certificate in it.
        raise BadOption("ca_file", f"a file with certificates ({error.strerror or error})", path) from error


async def _run(args: argparse.Namespace) -> None:
    options: SessionOptions = {
        "language": args.language,
        "task": args.task,
        "prompt": args.prompt,
        "ssl": _read_ca_file(args.ca_file),
        "api_key": args.api_key or os.environ.get("TUTTI_API_KEY", "").strip() or None,
    }
    if args.source in ("-", "mic") or args.speed is not None:
        await _run_live(args, options)
    else:
        await _run_upload(args, options)


async def _run_upload(args: argparse.Namespace, options: SessionOptions) -> None:
    progress = _ProgressLine()
    show = _show_json if args.json else _show_captions
    async with aclosing(transcribe_file(args.url, args.source, on_progress=progress.show, **options)) as events:
        try:
            await show(progress.hide_for(events), 1)
        finally:
            progress.hide()


class _ProgressLine:
    """A line on standard error that says how far a file has come, if that is a terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()

    def show(self, progress: FileProgress) -> None:
        self._write(CLEAR_LINE + describe_progress(progress))

    def hide(self) -> None:
        self._write(CLEAR_LINE)

    async def hide_for(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        """Pass the events on. Whatever is written about one stands on a line of its own."""
        async for event in events:
            self.hide()
            yield event

    def _write(self, text: str) -> None:
        if self._is_terminal:
            sys.stderr.write(text)
            sys.stderr.flush()


async def _run_live(args: argparse.Namespace, options: SessionOptions) -> None:
    async with AsyncExitStack() as stack:
        chunks, format = await _open_source(args, stack)
        live: ConnectOptions = {
            **options,
            "encoding": format.encoding,
            "sample_rate": format.sample_rate,
            "channels": format.channels,
            "interim": args.json or sys.stdout.isatty(),
        }
        session = await stack.enter_async_context(connect(args.url, **live))
        pace = Pace(args.speed, session.started.limits.max_ahead_s)
        audio = await stack.enter_async_context(aclosing(paced(chunks, format, pace)))
        events = await stack.enter_async_context(aclosing(session.stream(audio)))
        show = _show_json if args.json else _show_captions
        with _end_audio_on_interrupt(session):
            if args.json:
                _write_json(session.started)
            else:
                sys.stderr.writelines(f"tutti: {warning.message}\n" for warning in session.started.warnings)
            await show(events, format.channels, is_live=args.source in ("-", "mic"))


async def _open_source(
    args: argparse.Namespace, stack: AsyncExitStack
) -> tuple[AsyncGenerator[bytes, None], AudioFormat]:
    if args.source == "mic":
        chunks, format = record(find_recorder()), MICROPHONE_FORMAT
    elif args.source == "-":
        chunks = read_stdin(sys.stdin.buffer)
        format = AudioFormat(args.encoding or "pcm_s16le", args.rate or 16000, args.channels or 1)
    else:
        wav = stack.enter_context(await asyncio.to_thread(WavFile, args.source))
        chunks, format = read_chunks(wav), wav.format
    return await stack.enter_async_context(aclosing(chunks)), format


@contextmanager
def _end_audio_on_interrupt(session: Session) -> Iterator[None]:
    """Let the first Ctrl-C end the audio, so that the last finals still come. The second ends the program."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)

    def interrupt() -> None:
        signal.signal(signal.SIGINT, before)
        session.end_audio()

    signal.signal(signal.SIGINT, lambda number, frame: loop.call_soon_threadsafe(interrupt))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def _show_json(events: AsyncGenerator[Event, None], n_channels: int, is_live: bool = False) -> None:
    async for event in events:
        _write_json(event)


def _write_json(event: Event) -> None:
    sys.stdout.write(json.dumps(event_to_wire(event), ensure_ascii=False) + "\n")
    sys.stdout.flush()


async def _show_captions(events: AsyncGenerator[Event, None], n_channels: int, is_live: bool = False) -> None:
    lines = CaptionLines(n_channels, None)
    async for event in events:
        # The window may have another size now.
        lines.columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        match event:
            case ServerWarning() | ErrorEvent():
                _write_note(lines, event.message)
            case Reconnecting() | Resumed():
                _write_note(lines, connection_note(event))
            case Lag():
                # A file does not wait for its captions.
                if is_live:
                    _write_note(lines, f"{event.behind_s:.1f} s behind")
            case _:
                sys.stdout.write(lines.add(event))
        sys.stdout.flush()


def _write_note(lines: CaptionLines, text: str) -> None:
    # On a terminal, a note must not break the line that is drawn again. Elsewhere it must not be among the captions.
    stream = sys.stderr if lines.columns is None else sys.stdout
    stream.write(lines.note(f"tutti: {text}"))


if __name__ == "__main__":
    sys.exit(main())
