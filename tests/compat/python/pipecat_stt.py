"""Runs Pipecat's STT service for Deepgram, or that for Flux, on raw samples.

It is given their path, which service, and options of the service, as one JSON object. The client's detector is played
by hand: the turn ends where the samples do. For Flux they are followed by silence, so that the server ends the turn.
Prints final texts, errors, and the news of turns.
"""

import asyncio
import json
import sys
from pathlib import Path

from loguru import logger
from pipecat.frames.frames import (
    ErrorFrame,
    InputAudioRawFrame,
    TranscriptionFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.services.deepgram.flux.stt import DeepgramFluxSTTService
from pipecat.services.deepgram.stt import DeepgramSTTService
from pipecat.tests.utils import SleepFrame, run_test

RATE = 16_000
PIECE_BYTES = 2 * RATE // 10
SILENCE = bytes(2 * RATE * 2)


async def main(samples: bytes, *, is_flux: bool, **options: object) -> dict[str, object]:
    samples += SILENCE if is_flux else b""
    frames = []
    for at in range(0, len(samples), PIECE_BYTES):
        frames.append(InputAudioRawFrame(samples[at : at + PIECE_BYTES], RATE, 1))
        frames.append(SleepFrame(0.02))
    frames += [SleepFrame(2.0)] if is_flux else [VADUserStoppedSpeakingFrame(), SleepFrame(3.0)]
    news: list[str] = []
    if is_flux:
        service = DeepgramFluxSTTService(sample_rate=RATE, enable_eager_end_of_turn=True, **options)
        for name in ("on_start_of_turn", "on_turn_resumed", "on_eager_end_of_turn", "on_end_of_turn"):

            async def note(service: object, *_: object, name: str = name) -> None:
                news.append(name)

            service.add_event_handler(name, note)
    else:
        service = DeepgramSTTService(sample_rate=RATE, **options)
    down, up = await run_test(service, frames_to_send=frames)
    return {
        "news": news,
        "finals": [[frame.text, frame.finalized] for frame in down if isinstance(frame, TranscriptionFrame)],
        "errors": [frame.error for frame in up if isinstance(frame, ErrorFrame)],
    }


logger.remove()
arguments = json.loads(sys.argv[1])
answer = asyncio.run(main(Path(arguments.pop("path")).read_bytes(), **arguments))
sys.stdout.write(json.dumps(answer))
