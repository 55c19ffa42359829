"""Runs Pipecat's service for OpenAI's file transcription on a turn.

Its argument is one JSON object with the path of the turn and the settings of the service. It prints the text, and how
many confidence values the answer had.
"""

import asyncio
import json
import sys
from pathlib import Path

from pipecat.services.openai.stt import OpenAISTTService


async def main(content: bytes, base_url: str, **settings: str) -> dict[str, object]:
    stt = OpenAISTTService(
        api_key="any",
        base_url=base_url,
        settings=OpenAISTTService.Settings(**settings),
        include_prob_metrics=True,
        sample_rate=16_000,
    )
    async with stt._client:
        (frame,) = [frame async for frame in stt.run_stt(content)]
    measures = getattr(frame.result, "segments", None) or getattr(frame.result, "logprobs", None) or ()
    return {"text": frame.text, "n_measures": len(measures)}


arguments = json.loads(sys.argv[1])
answer = asyncio.run(main(Path(arguments.pop("path")).read_bytes(), **arguments))
sys.stdout.write(json.dumps(answer))
