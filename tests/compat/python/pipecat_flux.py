"""Runs Pipecat's STT service for Deepgram's Flux on raw samples: their path, and options of the service, as JSON.

The samples are followed by silence, so that the server ends the turn. Prints final and interim texts, and errors.
"""

import asyncio
import json
import sys
from pathlib import Path

from loguru import logger
from pipecat.frames.frames import ErrorFrame, InputAudioRawFrame, InterimTranscriptionFrame, TranscriptionFrame
from pipecat.services.deepgram.flux.stt import DeepgramFluxSTTService
from pipecat.tests.utils import SleepFrame, run_test

RATE = 16_000
PIECE_BYTES = 2 * RATE // 10
SILENCE = bytes(2 * RATE * 2)


async def main(samples: bytes, **options: object) -> dict[str, object]:
    samples += SILENCE
    frames = []
    for at in range(0, len(samples), PIECE_BYTES):
        frames.append(InputAudioRawFrame(samples[at : at + PIECE_BYTES], RATE, 1))
        frames.append(SleepFrame(0.02))
    frames.append(SleepFrame(2.0))
    service = DeepgramFluxSTTService(sample_rate=RATE, enable_eager_end_of_turn=True, **options)
    news: list[str] = []
    for name in ("on_start_of_turn", "on_turn_resumed", "on_eager_end_of_turn", "on_end_of_turn"):

        async def note(service: object, *_: object, name: str = name) -> None:
            news.append(name)

        service.add_event_handler(name, note)
    down, up = await run_test(service, frames_to_send=frames)
    return {
        "news": news,
        "finals": [frame.text for frame in down if isinstance(frame, TranscriptionFrame)],
        "interims": [frame.text for frame in down if isinstance(frame, InterimTranscriptionFrame)],
        "errors": [frame.error for frame in up if isinstance(frame, ErrorFrame)],
    }


logger.remove()
arguments = json.loads(sys.argv[1])
answer = asyncio.run(main(Path(arguments.pop("path")).read_bytes(), **arguments))
sys.stdout.write(json.dumps(answer))
