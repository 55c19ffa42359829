"""Runs LiveKit's STT class for Deepgram on raw samples: their path, and options of the class, as one JSON object.

Prints the kinds and texts of its events for a stream, and the answer for a recording.
"""

import asyncio
import json
import sys
from pathlib import Path

import aiohttp
from livekit import rtc
from livekit.agents.stt import SpeechEventType
from livekit.plugins import deepgram

RATE = 16_000
PIECE_BYTES = 2 * RATE // 20


async def main(samples: bytes, **options: object) -> dict[str, object]:
    async with aiohttp.ClientSession() as session:
        stt = deepgram.STT(http_session=session, **options)
        recorded = await stt.recognize(rtc.AudioFrame(samples, RATE, 1, len(samples) // 2))
        stream = stt.stream()

        async def play() -> None:
            for at in range(0, len(samples), PIECE_BYTES):
                piece = samples[at : at + PIECE_BYTES]
                stream.push_frame(rtc.AudioFrame(piece, RATE, 1, len(piece) // 2))
                await asyncio.sleep(0.01)
            # It says Finalize, and then CloseStream.
            stream.flush()
            stream.end_input()

        playing = asyncio.create_task(play())
        events = []
        async for event in stream:
            if event.type != SpeechEventType.RECOGNITION_USAGE:
                text = event.alternatives[0].text if event.alternatives else None
                n_words = len(event.alternatives[0].words or ()) if event.alternatives else 0
                events.append({"type": event.type.value, "text": text, "n_words": n_words})
        await playing
        await stream.aclose()
    return {"recorded": recorded.alternatives[0].text, "events": events}


arguments = json.loads(sys.argv[1])
answer = asyncio.run(main(Path(arguments.pop("path")).read_bytes(), **arguments))
sys.stdout.write(json.dumps(answer))
