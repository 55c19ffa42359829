"""Vonage's Voice API, which dials a WebSocket for one leg of a call."""

import json

from recording import Recording, pieces
from websockets.asyncio.client import connect

NEEDS_MONO = True


async def play(recording: Recording, url: str, key: str, call: str, speed: float, *, side: str) -> None:
    """Be Vonage: a description of the audio with the headers of the NCCO, frames of 20 ms, and a close."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with connect(f"{url}/v1/vonage", additional_headers=headers, compression=None) as stream:
        content_type = f"audio/l16;rate={recording.sample_rate}"
        own = {"call": call, "language": "en", "interim": "false", "leg": side}
        await stream.send(json.dumps({"event": "websocket:connected", "content-type": content_type, **own}))
        async for piece in pieces(recording.data, 2 * recording.sample_rate, speed):
            await stream.send(piece)
