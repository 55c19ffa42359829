"""Runs Pipecat's STT service for Deepgram on raw samples: their path, and options of the service, as one JSON object.

The client's detector is played by hand: the turn ends where the samples do. Prints final and interim texts, and errors.
"""

import asyncio
import json
import sys
from pathlib import Path

from loguru import logger
from pipecat.frames.frames import (
    ErrorFrame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.services.deepgram.stt import DeepgramSTTService
from pipecat.tests.utils import SleepFrame, run_test

RATE = 16_000
PIECE_BYTES = 2 * RATE // 10


async def main(samples: bytes, **options: object) -> dict[str, object]:
    frames = []
    for at in range(0, len(samples), PIECE_BYTES):
        frames.append(InputAudioRawFrame(samples[at : at + PIECE_BYTES], RATE, 1))
        frames.append(SleepFrame(0.02))
    frames += [VADUserStoppedSpeakingFrame(), SleepFrame(3.0)]
    service = DeepgramSTTService(sample_rate=RATE, **options)
    down, up = await run_test(service, frames_to_send=frames)
    return {
        "finals": [[frame.text, frame.finalized] for frame in down if isinstance(frame, TranscriptionFrame)],
        "interims": [frame.text for frame in down if isinstance(frame, InterimTranscriptionFrame)],
        "errors": [frame.error for frame in up if isinstance(frame, ErrorFrame)],
    }


logger.remove()
arguments = json.loads(sys.argv[1])
answer = asyncio.run(main(Path(arguments.pop("path")).read_bytes(), **arguments))
sys.stdout.write(json.dumps(answer))
