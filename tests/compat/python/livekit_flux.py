"""Runs LiveKit's STT class for Flux on raw samples: their path, and options of the class, as one JSON object.

Prints the kinds and texts of its events.
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


async def main(samples: bytes, **options: object) -> list[dict[str, object]]:
    async with aiohttp.ClientSession() as session:
        stt = deepgram.STTv2(http_session=session, **options)
        stream = stt.stream()

        async def play() -> None:
            for at in range(0, len(samples), PIECE_BYTES):
                piece = samples[at : at + PIECE_BYTES]
                stream.push_frame(rtc.AudioFrame(piece, RATE, 1, len(piece) // 2))
                await asyncio.sleep(0.01)
            # It sends Configure, and CloseStream at the end.
            stt.update_options(eot_threshold=0.8, keyterm=["platform"])
            await asyncio.sleep(0.1)
            stream.end_input()

        playing = asyncio.create_task(play())
        events = []
        async for event in stream:
            if event.type != SpeechEventType.RECOGNITION_USAGE:
                data = event.alternatives[0] if event.alternatives else None
                text, n_words = (data.text, len(data.words or ())) if data else (None, 0)
                events.append({"type": event.type.value, "text": text, "n_words": n_words})
        await playing
        await stream.aclose()
    return events


arguments = json.loads(sys.argv[1])
answer = asyncio.run(main(Path(arguments.pop("path")).read_bytes(), **arguments))
sys.stdout.write(json.dumps(answer))
