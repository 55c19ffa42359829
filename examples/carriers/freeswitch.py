"""FreeSWITCH's mod_audio_stream, which streams one side of a call or both as linear audio."""

import json

from recording import Recording, pieces
from websockets.asyncio.client import connect

NEEDS_MONO = False


async def play(recording: Recording, url: str, key: str, call: str, speed: float) -> None:
    """Be the module: metadata first, then audio. The other end of `uuid_audio_stream stop` is a close."""
    mix = "mono" if recording.channels == 1 else "stereo"
    rate = f"{recording.sample_rate // 1000}k"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    address = f"{url}/v1/freeswitch?mix={mix}&rate={rate}&answers=false"
    async with connect(address, additional_headers=headers, compression=None) as stream:
        await stream.send(json.dumps({"call": call, "language": "en", "interim": False}))
        async for piece in pieces(recording.data, 2 * recording.channels * recording.sample_rate, speed):
            await stream.send(piece)
