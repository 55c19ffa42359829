"""Runs LiveKit's STT class for OpenAI on a turn of raw samples: their path, and options of the class, as JSON.

Prints what it heard and in which language, or the status with which it was refused.
"""

import asyncio
import json
import sys
from pathlib import Path

from livekit import rtc
from livekit.agents import APIConnectOptions, APIStatusError
from livekit.plugins import openai

RATE = 16_000


async def main(samples: bytes, **options: object) -> dict[str, object]:
    stt = openai.STT(**options)
    frame = rtc.AudioFrame(samples, RATE, 1, len(samples) // 2)
    async with stt._client:
        try:
            heard = (await stt.recognize(frame, conn_options=APIConnectOptions(max_retry=0))).alternatives[0]
        except APIStatusError as error:
            return {"status": error.status_code, "request_id": error.request_id}
        return {"text": heard.text, "language": heard.language}


arguments = json.loads(sys.argv[1])
answer = asyncio.run(main(Path(arguments.pop("path")).read_bytes(), **arguments))
sys.stdout.write(json.dumps(answer))
