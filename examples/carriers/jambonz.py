"""jambonz as the client of a custom speech recogniser: the text comes back on the socket of the audio."""

import asyncio
import json

from recording import Recording, pieces
from websockets.asyncio.client import ClientConnection, connect

NEEDS_MONO = True
ANSWERS = True
"""There is no call to subscribe to."""


async def play(recording: Recording, url: str, key: str, call: str, speed: float, *, side: str) -> None:
    """Be jambonz: a start, linear audio, and a stop, after which the server closes; print the final text."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with connect(f"{url}/v1/jambonz", additional_headers=headers, compression=None) as socket:
        printing = asyncio.ensure_future(print_transcriptions(socket, side))
        audio = {"format": "raw", "encoding": "LINEAR16", "sampleRateHz": recording.sample_rate}
        await socket.send(json.dumps({"type": "start", "language": "en-US", "interimResults": False, **audio}))
        async for piece in pieces(recording.data, 2 * recording.sample_rate, speed):
            await socket.send(piece)
        await socket.send(json.dumps({"type": "stop"}))
        await printing


async def print_transcriptions(socket: ClientConnection, side: str) -> None:
    """Print the final texts until the server closes."""
    async for message in socket:
        answer = json.loads(message)
        if answer["type"] == "error":
            raise ValueError(answer["error"])
        print(f"{side}: {answer['alternatives'][0]['transcript']}", flush=True)
