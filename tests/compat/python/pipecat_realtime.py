"""Runs Pipecat's STT service for OpenAI Realtime: the recording's path, and options of the service, as one JSON object.

The client's detector is played by hand: the turn ends where the recording does. Prints the texts of final and interim
frames, and the errors.
"""

import asyncio
import json
import sys
from pathlib import Path

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.stt import OpenAIRealtimeSTTService
from pipecat.workers.runner import WorkerRunner

RATE = 16_000
FRAME = RATE // 50


class Listener(FrameProcessor):
    """Collects texts; the first final one ends the pipeline."""

    def __init__(self) -> None:
        super().__init__()
        self.finals: list[str] = []
        self.interims: list[str] = []
        self.ended = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InterimTranscriptionFrame):
            self.interims.append(frame.text)
        if isinstance(frame, TranscriptionFrame):
            self.finals.append(frame.text)
            self.ended.set()
        await self.push_frame(frame, direction)


async def main(samples: bytes, turn_detection: dict[str, object] | bool = False, **options: str) -> dict[str, object]:
    errors: list[str] = []
    stt = OpenAIRealtimeSTTService(turn_detection=turn_detection, **options)
    listener = Listener()
    worker = PipelineWorker(Pipeline([stt, listener]), params=PipelineParams(audio_in_sample_rate=RATE))

    @worker.event_handler("on_pipeline_error")
    async def on_error(worker: PipelineWorker, frame: ErrorFrame) -> None:
        errors.append(frame.error)
        listener.ended.set()

    @worker.event_handler("on_pipeline_started")
    async def on_started(worker: PipelineWorker, frame: Frame) -> None:
        async def play() -> None:
            if turn_detection is False:
                await worker.queue_frame(VADUserStartedSpeakingFrame())
            for at in range(0, len(samples), 2 * FRAME):
                piece = samples[at : at + 2 * FRAME]
                await worker.queue_frame(InputAudioRawFrame(audio=piece, sample_rate=RATE, num_channels=1))
                await asyncio.sleep(0.004)
            if turn_detection is False:
                await worker.queue_frame(VADUserStoppedSpeakingFrame())
            await listener.ended.wait()
            await worker.queue_frame(EndFrame())

        playing.append(asyncio.create_task(play()))

    playing: list[asyncio.Task[None]] = []
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()
    return {"finals": listener.finals, "interims": listener.interims, "errors": errors}


if __name__ == "__main__":
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    given = json.loads(sys.argv[1])
    said = asyncio.run(main(Path(given.pop("path")).read_bytes(), **given))
    sys.stdout.write(json.dumps(said))
