"""Twilio's media streams, which dial a WebSocket with one side of a call or both as JSON messages."""

import base64
import itertools
import json

from recording import Recording, pieces
from websockets.asyncio.client import connect

NEEDS_MONO = False


async def play(recording: Recording, url: str, key: str, call: str, speed: float) -> None:
    """Be Twilio: the key among the parameters of the stream, chunks of mu-law for each track, and a stop."""
    tracks = ["inbound", "outbound"][: recording.channels]
    stream = f"{call}-stream"
    numbers = itertools.count(1)
    async with connect(f"{url}/v1/twilio", compression=None) as socket:

        async def send(event: str, **fields: object) -> None:
            message = {"event": event, "sequenceNumber": str(next(numbers)), "streamSid": stream, **fields}
            await socket.send(json.dumps(message))

        await socket.send(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
        parameters = {"token": key, "language": "en", "interim": "false"}
        media_format = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
        about = {"accountSid": "AC0", "streamSid": stream, "callSid": call, "tracks": tracks}
        await send("start", start={**about, "customParameters": parameters, "mediaFormat": media_format})
        number = 0
        async for piece in pieces(recording.mulaw(), 8000 * recording.channels, speed):
            times = {"chunk": str(number + 1), "timestamp": str(20 * number)}
            for side, track in enumerate(tracks):
                payload = base64.b64encode(piece[side :: len(tracks)]).decode()
                await send("media", media={"track": track, **times, "payload": payload})
            number += 1
        await send("stop", stop={"accountSid": "AC0", "callSid": call})
