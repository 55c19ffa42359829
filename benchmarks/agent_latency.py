"""How long a Pipecat agent waits from the end of speech to the final text, as Pipecat itself measures it.

Recordings of one person are played in real time to Pipecat's own services, behind its Silero detector with the usual
`stop_secs` of 0.2. The figures are those of its metrics (`TTFBMetricsData` of a speech-to-text service), which
`ttfs_p99_latency` asks for. It runs where `make agents` has installed Pipecat, against a server that runs:

    .venv/agents/bin/python -m benchmarks.agent_latency --url ws://127.0.0.1:8000 recordings/*.wav
"""

import argparse
import asyncio
import math
import sys
import wave
from pathlib import Path

from loguru import logger
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.frames.frames import EndFrame, Frame, InputAudioRawFrame, MetricsFrame, TranscriptionFrame
from pipecat.metrics.metrics import TTFBMetricsData
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.audio.vad_processor import VADProcessor
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.deepgram.stt import DeepgramSTTService
from pipecat.services.openai.stt import OpenAIRealtimeSTTService
from pipecat.services.stt_service import STTService
from pipecat.workers.runner import WorkerRunner

STOP_S = 0.2
"""The silence in seconds after which Pipecat's detector says that speech has ended: Pipecat's default."""
SILENCE_S = 3.0
"""The silence after each recording: longer than Pipecat waits for text before it measures to the last one."""
FRAME_S = 0.02


class Meter(FrameProcessor):
    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.n_finals = 0

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, MetricsFrame):
            self.seconds += [each.value for each in frame.data if isinstance(each, TTFBMetricsData) and each.value > 0]
        self.n_finals += isinstance(frame, TranscriptionFrame) and bool(frame.text.strip())
        await self.push_frame(frame, direction)


def make_service(name: str, url: str, key: str, rate: int) -> STTService:
    if name == "deepgram":
        return DeepgramSTTService(base_url=url.replace("ws", "http", 1), api_key=key, sample_rate=rate)
    return OpenAIRealtimeSTTService(base_url=f"{url}/v1/realtime", api_key=key)


async def play(worker: PipelineWorker, recordings: list[Path], rate: int, delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    clock = asyncio.get_running_loop().time
    due = clock()
    for path in recordings:
        with wave.open(str(path), "rb") as reader:
            audio = reader.readframes(reader.getnframes())
        n_bytes = 2 * round(rate * FRAME_S)
        audio += bytes(round(SILENCE_S / FRAME_S) * n_bytes)
        for at in range(0, len(audio), n_bytes):
            await worker.queue_frame(InputAudioRawFrame(audio[at : at + n_bytes], rate, 1))
            due += FRAME_S
            await asyncio.sleep(max(0.0, due - clock()))
    await worker.queue_frame(EndFrame())


async def measure(args: argparse.Namespace, number: int) -> Meter:
    meter = Meter()
    vad = VADProcessor(vad_analyzer=SileroVADAnalyzer(params=VADParams(stop_secs=STOP_S)))
    service = make_service(args.service, args.url, args.api_key, args.rate)
    params = PipelineParams(audio_in_sample_rate=args.rate, enable_metrics=True)
    worker = PipelineWorker(Pipeline([vad, service, meter]), params=params)
    # Calls do not begin at the same moment, and each has another order.
    shift = number % len(args.recordings)
    recordings = args.recordings[shift:] + args.recordings[:shift]
    playing = asyncio.create_task(play(worker, recordings, args.rate, 1.0 + 0.37 * number))
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()
    await playing
    return meter


async def run(args: argparse.Namespace) -> None:
    meters = await asyncio.gather(*(measure(args, number) for number in range(args.calls)))
    seconds = sorted(second for meter in meters for second in meter.seconds)
    if not seconds:
        sys.exit("Pipecat measured nothing: did any text come?")
    p50, p95, p99 = (seconds[math.ceil(len(seconds) * share) - 1] for share in (0.5, 0.95, 0.99))
    finals = sum(meter.n_finals for meter in meters)
    print(f"| {args.service} | {args.calls} | {len(seconds)} | {finals} | {p50:.2f} | {p95:.2f} | {p99:.2f} |")


def unlike(path: Path, rate: int) -> str | None:
    """How a recording differs from what is played."""
    try:
        with wave.open(str(path), "rb") as reader:
            shape = reader.getnchannels(), reader.getsampwidth(), reader.getframerate()
    except (OSError, EOFError, wave.Error) as error:
        return str(error)
    n_channels, n_bytes, own_rate = shape
    return None if shape == (1, 2, rate) else f"{n_channels} channels of {8 * n_bytes} bits at {own_rate} Hz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="+", help="mono WAV files of 16 bits at 16 kHz, of one person")
    parser.add_argument("--url", default="ws://127.0.0.1:8000", help="the server")
    parser.add_argument("--api-key", default="any", help="its key, if it has keys")
    parser.add_argument("--service", choices=("deepgram", "openai"), default="deepgram", help="Pipecat's service")
    parser.add_argument("--calls", type=int, default=1, help="how many calls there are at the same time")
    args = parser.parse_args()
    args.rate = 16_000
    for path in args.recordings:
        if problem := unlike(path, args.rate):
            parser.error(f"{path}: expected a mono WAV file of 16 bits at 16 kHz, got {problem}")
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    asyncio.run(run(args))


if __name__ == "__main__":
    main()
