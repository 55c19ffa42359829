"""Asterisk's WebSocket channel, which streams one side of a call in the codec of its channel."""

import json

from recording import Recording, pieces
from websockets.asyncio.client import connect

NEEDS_MONO = True


async def play(recording: Recording, url: str, key: str, call: str, speed: float, *, side: str) -> None:
    """Be a channel whose codec is signed linear at the rate of the recording, with messages in JSON."""
    codec = "slin" if recording.sample_rate == 8000 else f"slin{recording.sample_rate // 1000}"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with connect(
        f"{url}/v1/asterisk?language=en&interim=false&track={side}",
        subprotocols=["media"],  # type: ignore[list-item]  # a plain text will do
        additional_headers=headers,
        compression=None,
    ) as channel:
        start = {"event": "MEDIA_START", "connection_id": f"{call}-media", "channel_id": call, "format": codec}
        await channel.send(json.dumps({**start, "optimal_frame_size": recording.sample_rate // 25, "ptime": 20}))
        async for piece in pieces(recording.data, 2 * recording.sample_rate, speed):
            await channel.send(piece)
