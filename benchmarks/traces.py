"""Measures what traces cost a gateway: milliseconds of processor time for each second of a live session.

    python -m benchmarks.traces

A server in this process, with all that a gateway does, serves sessions of clients in another process. The engine
answers at once and costs nothing. Spans are encoded as for a collector, and then dropped.
"""

import asyncio
import multiprocessing
import os
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import click
import numpy as np
import uvloop

import tutti
from app.main import Server, bind, build_app
from app.service.settings import Settings
from app.tracing.tracing import NO_TRACING, Tracing
from benchmarks import machine, report
from benchmarks.options import CONTEXT_SETTINGS, json_option, markdown_option
from benchmarks.recordings import load_bundled
from benchmarks.report import Table, number
from engine import api
from engine.api import SAMPLE_RATE
from engine.scheduling.stats import StatsRecorder

SCHEMA = 1
SAMPLERS = {"off": None, "10 % of the sessions": "0.1", "all sessions": "1.0"}
"""The ratios of sampled sessions that are compared, as OTEL_TRACES_SAMPLER_ARG has them; `None` without traces."""
WARM_UP_S = 5.0
"""The length of the sessions that run before the measurement, in seconds."""
MODEL = api.ModelInfo(
    name="none",
    device="cpu",
    dtype="float32",
    is_multilingual=False,
    languages=("en",),
    tasks=("transcribe",),
    n_parameters=0,
    n_slots=8,
    max_encode_batch=8,
)
TIMING = api.WindowTiming(queued_s=0.001, encode_s=0.01, prefill_s=0.001, decode_s=0.01)


class InstantEngine:
    """Answers every window at once, with the same few words for all of its audio."""

    info = MODEL
    is_alive = True
    is_lost = False
    problems = ()

    def __init__(self) -> None:
        self.n_windows = 0

    @asynccontextmanager
    async def submit(self, window: api.Window) -> AsyncIterator[AsyncIterator[api.EngineEvent]]:
        self.n_windows += 1
        yield self._events(len(window.samples) / SAMPLE_RATE)

    async def _events(self, audio_s: float) -> AsyncIterator[api.EngineEvent]:
        words = [api.Piece((100 + at,), f" {word}") for at, word in enumerate("these words fill the window".split())]
        pieces = (api.Piece((1000,), "", 0.0), *words, api.Piece((1001,), "", audio_s))
        text = "".join(piece.text for piece in pieces)
        segment = api.Segment(
            start_s=0.0,
            end_s=audio_s,
            text=text,
            tokens=tuple(token for word in words for token in word.tokens),
            avg_logprob=-0.1,
            compression_ratio=1.0,
            no_speech_prob=0.0,
        )
        yield api.StartedEvent(TIMING.queued_s, 1)
        yield api.SegmentEvent(segment)
        yield api.DoneEvent(
            text=text,
            pieces=pieces,
            segments=(segment,),
            language=None,
            no_speech_prob=0.0,
            avg_logprob=-0.1,
            compression_ratio=1.0,
            is_truncated=False,
            n_steps=len(pieces),
            timing=TIMING,
        )

    def stats(self) -> api.EngineStats:
        stats = StatsRecorder().snapshot(
            n_waiting=lambda priority: 0,
            running=0,
            utterance_encode_s=0.001,
            window_decode_s=0.001,
            work_waiting_s=0.0,
            final_work_waiting_s=0.0,
        )
        return replace(stats, windows_done=self.n_windows)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--sessions", default=8, show_default=True, help="Sessions at the same time.")
@click.option("--seconds", default=60.0, show_default=True, help="Seconds of audio of each session.")
@click.option("--rounds", default=5, show_default=True, help="Measurements of each kind, in turns; the median counts.")
@json_option("traces")
@markdown_option
def main(sessions: int, seconds: float, rounds: int, path: Any, markdown: bool) -> None:
    """Compare the processor time of a gateway without traces, with some and with all."""
    result: dict[str, Any] = {"benchmark": "traces", "schema": SCHEMA, **machine.describe()}
    found: dict[str, list[float]] = {name: [] for name in SAMPLERS}
    n_windows = 0
    for _ in range(rounds):
        for name, ratio in SAMPLERS.items():
            cpu_s, n_windows = uvloop.run(measure(ratio, sessions, seconds))
            found[name].append(1000 * cpu_s / sessions / seconds)
    result["n_sessions"], result["seconds"] = sessions, seconds
    result["windows_per_s"] = n_windows / sessions / seconds
    result["ms_per_s"] = found
    report.show([table(found, result["windows_per_s"])], result, as_markdown=markdown, path=path)


def table(found: dict[str, list[float]], windows_per_s: float) -> Table:
    """A row for each ratio of sampled sessions."""
    medians = {name: statistics.median(each) for name, each in found.items()}
    return Table(
        f"Processor time of a gateway, {windows_per_s:.1f} windows for each second of a session",
        ("traces of", "ms/s", "least", "most", "sessions\nper core", "against off"),
        [
            (
                name,
                number(medians[name]),
                number(min(each)),
                number(max(each)),
                str(int(1000 / medians[name])),
                number(medians[name] / medians["off"]),
            )
            for name, each in found.items()
        ],
    )


async def measure(ratio: str | None, n_sessions: int, seconds: float) -> tuple[float, int]:
    """The processor seconds of this process for the sessions, and the windows that they had."""
    engine = InstantEngine()
    settings = Settings(port=0, max_ahead_s=3600.0, max_sessions=n_sessions, max_final_wait_s=1000.0)
    tracing = make_tracing(ratio)
    started = asyncio.Event()
    server = Server(build_app(settings, engine, tracing=tracing), settings, on_started=started.set)
    with bind(settings) as listener:
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}"
        serving = asyncio.create_task(server.serve([listener]))
        await started.wait()
        await run_clients(url, n_sessions, WARM_UP_S)
        engine.n_windows, begin_s = 0, time.process_time()
        await run_clients(url, n_sessions, seconds)
        server.stop()
        await serving
    return time.process_time() - begin_s, engine.n_windows


def make_tracing(ratio: str | None) -> Tracing:
    """Traces of this ratio of sessions, which are encoded and dropped."""
    if ratio is None:
        return NO_TRACING
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    from app.tracing.open_telemetry import OpenTelemetry

    class Encoder(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            encode_spans(spans).SerializeToString()
            return SpanExportResult.SUCCESS

    os.environ |= {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": ratio}
    return OpenTelemetry(Encoder())


async def run_clients(url: str, n_sessions: int, seconds: float) -> None:
    """Stream recordings from another process, and wait until all have their texts."""
    process = multiprocessing.get_context("spawn").Process(target=stream_all, args=(url, n_sessions, seconds))
    process.start()
    await asyncio.to_thread(process.join)
    if process.exitcode:
        raise click.ClickException(f"the clients ended with status {process.exitcode}")


def stream_all(url: str, n_sessions: int, seconds: float) -> None:
    """Stream a recording in each session, as fast as the server reads. Called in a process of its own."""

    async def stream(samples: np.ndarray) -> None:
        async with tutti.connect(url, language="en", resume_buffer_s=0) as session:
            audio = (samples * 32767).astype("<i2").tobytes()
            listening = asyncio.create_task(listen(session))
            for at in range(0, len(audio), SAMPLE_RATE // 5):
                await session.send(audio[at : at + SAMPLE_RATE // 5])
            await session.stop()
            await listening

    async def listen(session: tutti.Session) -> None:
        async for _ in session:
            pass

    n_samples = round(seconds * SAMPLE_RATE)
    recordings = load_bundled(seconds, n_sessions)

    async def run() -> None:
        await asyncio.gather(*(stream(np.resize(each.samples, n_samples)) for each in recordings))

    asyncio.run(run())


if __name__ == "__main__":
    main()
