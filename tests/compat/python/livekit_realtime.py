"""Runs LiveKit's STT class for OpenAI Realtime: the recording's path, and options of the class, as one JSON object.

Prints the texts of its final and interim events, or the error that it raised.
"""

import asyncio
import json
import sys
from pathlib import Path

import aiohttp
from livekit import rtc
from livekit.agents import APIError
from livekit.agents.stt import SpeechEventType
from livekit.plugins import openai

RATE = 16_000
FRAME = RATE // 20


async def main(samples: bytes, **options: object) -> dict[str, object]:
    finals, interims = [], []
    async with aiohttp.ClientSession() as session:
        stt = openai.STT(use_realtime=True, **options)
        stt._session = session
        stream = stt.stream()

        async def play() -> None:
            for at in range(0, len(samples), 2 * FRAME):
                piece = samples[at : at + 2 * FRAME]
                stream.push_frame(rtc.AudioFrame(piece, RATE, 1, len(piece) // 2))
                await asyncio.sleep(0.01)

        playing = asyncio.create_task(play())
        try:
            async for event in stream:
                if event.type == SpeechEventType.INTERIM_TRANSCRIPT:
                    interims.append(event.alternatives[0].text)
                if event.type == SpeechEventType.FINAL_TRANSCRIPT:
                    finals.append(event.alternatives[0].text)
                    break
        except APIError as error:
            return {"error": {"message": error.message, "retryable": error.retryable}}
        finally:
            playing.cancel()
            await stream.aclose()
            await stt.aclose()
    return {"finals": finals, "interims": interims}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    said = asyncio.run(main(Path(given.pop("path")).read_bytes(), **given))
    sys.stdout.write(json.dumps(said))
