"""Runs LiveKit's STT class for Deepgram, or that for Flux, on raw samples.

It is given their path, which class, and options of the class, as one JSON object. Prints the kinds and texts of its
events for a stream, and the text of a recording if the class is not for Flux.
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


async def main(samples: bytes, *, is_flux: bool, **options: object) -> dict[str, object]:
    async with aiohttp.ClientSession() as session:
        stt = (deepgram.STTv2 if is_flux else deepgram.STT)(http_session=session, **options)
        recorded = None if is_flux else await stt.recognize(rtc.AudioFrame(samples, RATE, 1, len(samples) // 2))
        stream = stt.stream()

        async def play() -> None:
            for at in range(0, len(samples), PIECE_BYTES):
                piece = samples[at : at + PIECE_BYTES]
                stream.push_frame(rtc.AudioFrame(piece, RATE, 1, len(piece) // 2))
                await asyncio.sleep(0.01)
            # It says Configure, or Finalize, and then CloseStream.
            if is_flux:
                stt.update_options(eot_threshold=0.8, keyterm=["platform"])
                await asyncio.sleep(0.1)
            else:
                stream.flush()
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
    return {"recorded": recorded and recorded.alternatives[0].text, "events": events}


arguments = json.loads(sys.argv[1])
answer = asyncio.run(main(Path(arguments.pop("path")).read_bytes(), **arguments))
sys.stdout.write(json.dumps(answer))
