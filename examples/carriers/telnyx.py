"""Telnyx's media streaming, which dials a WebSocket with both sides of a call as JSON messages."""

import base64
import itertools
import json

from recording import Recording, pieces
from websockets.asyncio.client import connect

NEEDS_MONO = False


async def play(recording: Recording, url: str, key: str, call: str, speed: float) -> None:
    """Be Telnyx: a start, chunks of mu-law for each track, of which two neighbours change places, and a stop."""
    tracks = ("inbound", "outbound")[: recording.channels]
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    track = "both_tracks" if recording.channels == 2 else "inbound_track"
    stream = f"{call}-stream"
    async with connect(f"{url}/v1/telnyx?track={track}", additional_headers=headers, compression=None) as socket:

        async def send(event: str, **fields: object) -> None:
            await socket.send(json.dumps({"event": event, "stream_id": stream, **fields}))

        await socket.send(json.dumps({"event": "connected", "version": "1.0.0"}))
        parameters = {"language": "en", "interim": "false"}
        media_format = {"encoding": "PCMU", "sample_rate": 8000, "channels": 1}
        start = {"call_control_id": call, "custom_parameters": parameters, "media_format": media_format}
        await send("start", start=start)
        chunks = [piece async for piece in pieces(recording.mulaw(), 8000 * recording.channels, speed)]
        for first in range(0, len(chunks), 2):
            for number, side in itertools.product(
                reversed(range(first, min(first + 2, len(chunks)))), range(len(tracks))
            ):
                payload = base64.b64encode(chunks[number][side :: len(tracks)]).decode()
                numbers = {"chunk": str(number + 1), "timestamp": str(20 * number)}
                await send("media", media={"track": tracks[side], **numbers, "payload": payload})
        await send("stop", stop={"call_control_id": call})
        await socket.wait_closed()
