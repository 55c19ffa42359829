"""Publishes a microphone or a WAV file in a room, and prints the address that OBS shows as a browser source."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from urllib.parse import urlencode, urlsplit, urlunsplit

import tutti
from tutti.audio import read_chunks
from tutti.recording import MICROPHONE_FORMAT, find_recorder, record


async def open_source(
    source: str, stack: AsyncExitStack
) -> tuple[AsyncGenerator[bytes, None], tutti.AudioFormat, float | None]:
    """The audio, its format, and how fast it may be sent: a microphone has a pace of its own."""
    if source == "mic":
        audio, format, speed = record(find_recorder()), MICROPHONE_FORMAT, None
    else:
        wav = stack.enter_context(await asyncio.to_thread(tutti.WavFile, source))
        audio, format, speed = read_chunks(wav), wav.format, 1.0
    return await stack.enter_async_context(aclosing(audio)), format, speed


def reader_address(url: str, path: str, **options: object) -> str:
    """The address of the readers' page on the server."""
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, path, urlencode(options), ""))


async def publish(args: argparse.Namespace) -> None:
    """Publish until the audio ends, or Ctrl-C ends it."""
    async with AsyncExitStack() as stack:
        audio, format, speed = await open_source(args.source, stack)
        # Without a name, the server makes one that cannot be guessed.
        room = tutti.Room(name=args.room, title=args.title)
        session = await stack.enter_async_context(
            tutti.connect(
                args.url,
                encoding=format.encoding,
                sample_rate=format.sample_rate,
                channels=format.channels,
                language=args.language,
                api_key=args.api_key,
                room=room,
            )
        )
        for warning in session.started.warnings:
            print(f"publish.py: {warning.message}", file=sys.stderr)
        if session.started.room is None:
            raise tutti.BadOption("--url", "a server that has rooms", args.url)
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            loop.remove_signal_handler(signal.SIGINT)
            session.end_audio()

        # The first Ctrl-C ends the audio, and the last text still comes; the second one ends the program.
        loop.add_signal_handler(signal.SIGINT, interrupt)
        path = session.started.room.path
        print(f"browser source: {reader_address(args.url, path, obs=1, lines=args.lines, size=args.size)}")
        print(f"for readers:    {reader_address(args.url, path)}", flush=True)
        pace = tutti.Pace(speed if args.speed is None else args.speed, session.started.limits.max_ahead_s)
        audio = await stack.enter_async_context(aclosing(tutti.paced(audio, format, pace)))
        async for event in await stack.enter_async_context(aclosing(session.stream(audio))):
            match event:
                case tutti.Segment():
                    print(event.text.strip(), flush=True)
                case tutti.Reconnecting():
                    print(f"publish.py: {event.reason}; trying again", file=sys.stderr)


def main() -> None:
    """Read the arguments, and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="mic, or a WAV file")
    parser.add_argument("--room", help="3 to 64 of A-Z, a-z, 0-9, _ and - (default: a name that cannot be guessed)")
    parser.add_argument("--title", help="what readers see above the captions")
    parser.add_argument("--lines", type=int, default=2, help="lines in OBS (default: %(default)s)")
    parser.add_argument("--size", type=int, default=48, help="pixels of a letter in OBS (default: %(default)s)")
    parser.add_argument("--speed", type=float, help="of a file: 2 is twice as fast (default: as it was spoken)")
    parser.add_argument("--language", help='code such as "en" (default: detected)')
    parser.add_argument("--url", default="ws://127.0.0.1:8000", help="the server (default: %(default)s)")
    parser.add_argument("--api-key", default=os.environ.get("TUTTI_API_KEY") or None, help="default: TUTTI_API_KEY")
    args = parser.parse_args()
    if args.source == "mic" and args.speed is not None:
        parser.error("--speed is for files: a microphone always records in real time")
    try:
        asyncio.run(publish(args))
    except (tutti.TuttiError, OSError) as error:
        sys.exit(f"publish.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
