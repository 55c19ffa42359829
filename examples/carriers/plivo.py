"""Plivo's audio streaming, which dials a WebSocket with one side of a call or both as JSON messages."""

import base64
import json
import time

from recording import Recording, pieces
from websockets.asyncio.client import connect

NEEDS_MONO = False


async def play(recording: Recording, url: str, key: str, call: str, speed: float) -> None:
    """Be Plivo: a start with extra headers, and chunks of mu-law for each track with the times of a clock."""
    tracks = ["inbound", "outbound"][: recording.channels]
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    stream = f"{call}-stream"
    async with connect(f"{url}/v1/plivo", additional_headers=headers, compression=None) as socket:
        media_format = {"encoding": "audio/x-mulaw", "sampleRate": 8000}
        start = {"callId": call, "streamId": stream, "tracks": tracks, "mediaFormat": media_format}
        await socket.send(json.dumps({"event": "start", "start": start, "extra_headers": "language=en;interim=false"}))
        began_ms, number = int(1000 * time.time()), 0
        async for piece in pieces(recording.mulaw(), 8000 * recording.channels, speed):
            times = {"timestamp": str(began_ms + 20 * number), "chunk": number + 1}
            for side, track in enumerate(tracks):
                payload = base64.b64encode(piece[side :: len(tracks)]).decode()
                media = {"track": track, **times, "payload": payload}
                await socket.send(json.dumps({"event": "media", "streamId": stream, "media": media}))
            number += 1
