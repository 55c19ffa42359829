"""Plays a recording to a server as a telephone system would stream a call, and prints who says what."""

import argparse
import asyncio
import importlib
import json
import os
import sys
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import ModuleType

from recording import Recording
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

CARRIERS = ("asterisk", "audiosocket", "audiohook", "freeswitch", "twilio", "vonage", "telnyx", "plivo", "jambonz")
"""Each is a module of this folder with `play`. Where `NEEDS_MONO` is true, its streams have one side of a call."""
SIDES = ("inbound", "outbound")
"""The names of the sides that have a stream each, in the order of the recording's channels."""


async def show(args: argparse.Namespace) -> None:
    """Play a call, and print the utterances of its sides. A side that has a stream of its own is a call of its own."""
    recording = Recording.open(args.recording)
    carrier = importlib.import_module(args.carrier)
    play = partial(carrier.play, port=args.port) if args.carrier == "audiosocket" else carrier.play
    if not carrier.NEEDS_MONO:
        await show_call(args, carrier, play, recording)
        return
    try:
        async with asyncio.TaskGroup() as tasks:
            for number, side in enumerate(SIDES[: recording.channels]):
                tasks.create_task(show_call(args, carrier, partial(play, side=side), recording.channel(number)))
    except ExceptionGroup as errors:
        # One sentence is enough: what stops one side stops the other one, too.
        raise errors.exceptions[0] from None


async def show_call(
    args: argparse.Namespace, carrier: ModuleType, play: Callable[..., Awaitable[None]], recording: Recording
) -> None:
    """Subscribe to a call, play it, and print its utterances."""
    call = str(uuid.uuid4())
    if hasattr(carrier, "ANSWERS"):
        await play(recording, args.url, args.key, call, args.speed)
        return
    headers = {"Authorization": f"Bearer {args.key}"} if args.key else {}
    async with connect(f"{args.url}/v1/calls/{call}", additional_headers=headers, compression=None) as subscriber:
        printing = asyncio.ensure_future(print_utterances(subscriber))
        try:
            await play(recording, args.url, args.key, call, args.speed)
            await printing
        finally:
            printing.cancel()


async def print_utterances(subscriber: ClientConnection) -> None:
    """Print the utterances of a call until it has ended."""
    tracks: list[str] = []
    async for message in subscriber:
        event = json.loads(message)
        match event["type"]:
            case "call_started":
                # A stream of Vonage's is always "mixed"; the application names its leg.
                tracks = [event["parameters"].get("leg", track) for track in event["tracks"]]
            case "utterance" if event["text"]:
                print(f"{tracks[event['channel']]}: {event['text']}", flush=True)
            case "error":
                print(event["message"], file=sys.stderr)


def socket_url(url: str) -> str:
    """The address of a server for WebSockets, from one of HTTP, too."""
    scheme, separator, rest = url.rstrip("/").partition("://")
    if not rest or scheme not in ("ws", "wss", "http", "https"):
        raise argparse.ArgumentTypeError(f"expected an address with ws, wss, http or https, got {url}")
    return f"{scheme.replace('http', 'ws')}{separator}{rest}"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("carrier", choices=CARRIERS)
    parser.add_argument("recording", type=Path, help="any audio; two channels are two sides of a call")
    parser.add_argument("--url", type=socket_url, default="ws://127.0.0.1:8000", help="the server")
    parser.add_argument("--port", type=int, default=9092, help="the server's port for AudioSocket")
    parser.add_argument("--key", default=os.environ.get("TUTTI_API_KEY", ""), help="the server's API key")
    parser.add_argument("--speed", type=float, default=1.0, help="how many times as fast as speech")
    args = parser.parse_args()
    if not args.speed > 0:
        parser.error(f"--speed: expected a number above 0, got {args.speed:g}")
    try:
        asyncio.run(show(args))
    except (OSError, ValueError, WebSocketException) as error:
        why = error.response.body.decode() if isinstance(error, InvalidStatus) else ""
        print(f"player.py: {error} {why}".rstrip(), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
