"""A Pipecat pipeline that hears with tutti: it prints what the user says and where each turn ends.

    pipeline.py speech.wav       a call that is played from a mono WAV file of 16 bits, without a transport

TUTTI_URL is the server (default: ws://127.0.0.1:8000) and TUTTI_API_KEY its key, if it has keys.
"""

import argparse
import asyncio
import os
import re
import sys
import wave
from pathlib import Path

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.deepgram.flux.stt import DeepgramFluxSTTService
from pipecat.workers.runner import WorkerRunner

URL = re.sub("^http", "ws", os.environ.get("TUTTI_URL", "ws://127.0.0.1:8000"))
API_KEY = os.environ.get("TUTTI_API_KEY") or "any"
FRAME_S = 0.02


class Printer(FrameProcessor):
    """Stands where your LLM and your voice follow: prints the text of the user, and passes every frame on."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Print a transcription."""
        await super().process_frame(frame, direction)
        match frame:
            case InterimTranscriptionFrame():
                print(f"       {frame.text}", flush=True)
            case TranscriptionFrame():
                print(f"final  {frame.text}", flush=True)
        await self.push_frame(frame, direction)


async def play(worker: PipelineWorker, args: argparse.Namespace) -> None:
    """Feed the pipeline as a transport does: the file, then silence until the caller hangs up."""
    with wave.open(str(args.recording), "rb") as reader:
        rate = reader.getframerate()
        n_frames = round(rate * FRAME_S)
        while audio := reader.readframes(n_frames):
            await worker.queue_frame(InputAudioRawFrame(audio=audio, sample_rate=rate, num_channels=1))
            await asyncio.sleep(FRAME_S / args.speed)
    for _ in range(round(args.silence / FRAME_S)):
        await worker.queue_frame(InputAudioRawFrame(audio=bytes(2 * n_frames), sample_rate=rate, num_channels=1))
        await asyncio.sleep(FRAME_S)
    await worker.queue_frame(EndFrame())


async def run(args: argparse.Namespace) -> None:
    """Run the pipeline until the caller hangs up."""
    with wave.open(str(args.recording), "rb") as reader:
        if (reader.getnchannels(), reader.getsampwidth()) != (1, 2):
            wanted = "expected a mono WAV file of 16 bits"
            raise ValueError(f"{args.recording}: {wanted}; ffmpeg -i {args.recording} -ac 1 out.wav makes one")
        rate = reader.getframerate()
    # Flux, as it ends turns by what was said; OpenAIRealtimeSTTService and DeepgramSTTService work too.
    stt = DeepgramFluxSTTService(url=f"{URL}/v2/listen", api_key=API_KEY, sample_rate=rate)
    # With a transport: Pipeline([transport.input(), stt, context, llm, tts, transport.output()]).
    worker = PipelineWorker(Pipeline([stt, Printer()]), params=PipelineParams(audio_in_sample_rate=rate))
    problems: list[str] = []
    playing: list[asyncio.Task[None]] = []

    @stt.event_handler("on_end_of_turn")
    async def show_turn(service: DeepgramFluxSTTService, text: str, *_: object) -> None:
        print(f"turn: {text}", flush=True)

    @worker.event_handler("on_pipeline_started")
    async def begin(worker: PipelineWorker, frame: Frame) -> None:
        playing.append(asyncio.create_task(play(worker, args)))

    @worker.event_handler("on_pipeline_error")
    async def fail(worker: PipelineWorker, frame: ErrorFrame) -> None:
        # An agent of yours lets Pipecat connect again; this call ends, and says why.
        problems.append(frame.error)
        await worker.cancel()

    # Ctrl-C ends the pipeline.
    runner = WorkerRunner(handle_sigint=True)
    await runner.add_workers(worker)
    await runner.run()
    for task in playing:
        task.cancel()
    if problems:
        raise ValueError(problems[0])


def main() -> None:
    """Read the arguments, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path, help="a mono WAV file of 16 bits")
    parser.add_argument("--speed", type=float, default=1.0, help="1 plays it in real time")
    parser.add_argument("--silence", type=float, default=5.0, help="seconds until the caller hangs up afterwards")
    args = parser.parse_args()
    if not args.speed > 0:
        parser.error(f"--speed: expected a number above 0, got {args.speed:g}")
    # Only warnings: Pipecat logs every step.
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    try:
        asyncio.run(run(args))
    except (ValueError, wave.Error, OSError) as error:
        sys.exit(f"pipeline.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
