"""Compares the throughput of the REST endpoint with that of the engine alone, on the same windows in one run.

    python -m benchmarks.rest_throughput --model random:large-v3 --slots 64 --max-encode-batch 16 --concurrency 64

First the engine runs alone, in a process that ends before the server starts. Then `tutti serve` runs with the same
settings and the arguments after `--`. Its clients run in processes of their own and keep their connections. Every
request is `--audio-s` of speech: one window and one greedy decoding attempt. The command exits with 1 when a
request failed or did not make exactly one window, or when the two decoded different numbers of tokens.
"""

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import click
import httpx
import numpy as np
import uvloop

from benchmarks import machine, report
from benchmarks.engine_throughput import apply_load
from benchmarks.files.endpoint import MAX_ERROR_CHARS, PATH, open_client, side_by_side
from benchmarks.files.labelled_clips import samples_to_wav
from benchmarks.options import benchmark_command, result_options, serve_arguments_argument
from benchmarks.recordings import NOISE, load_bundled
from benchmarks.report import Table, number
from benchmarks.scoring import percentile
from benchmarks.server import RunningServer, running_server
from benchmarks.server_counters import Counters
from benchmarks.throughput.work import Work
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE, DecodeOptions, DoneEvent, Priority, Transcriber, Window
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.process_environment import prepare_environment

MAX_CLIP_S = 28.0
"""The longest clip, in seconds: the service never cuts it."""
PAUSE_S = 0.2
"""Seconds of pause between pieces of speech in a clip: far too short for the service to cut there."""
N_CLIPS = 64
TIMEOUT_S = 300.0
FIELDS = {"model": "whisper-1", "language": "en", "response_format": "json"}
FIELDS |= {"temperature": "0", "temperature_fallback": "false", "beam_size": "1"}
"""Form fields of a request: greedy decoding without fallback, as the engine alone decodes."""
OPTIONS = DecodeOptions(language="en")
"""Options of a window, as the service sets them."""
MAX_TOKENS_APART = 2
"""Largest accepted difference in tokens per request: the server also counts steps launched ahead but not needed."""
SETTLED_S = 1.5
"""Counters that do not change for this many seconds are complete: gateways receive them with a delay."""
TOKENS = "tutti_engine_tokens_total"
"""The counter that shows whether the engine is still decoding."""
N_SHOWN_FAILURES = 5


@dataclass(frozen=True, slots=True)
class Speech(Work):
    """Requests that use clips in turn and decode each to its natural end."""

    clips: Sequence[Samples] = ()

    def window(self, index: int) -> Window:
        samples = self.clips[index % len(self.clips)]
        return Window(samples=samples, session="", options=OPTIONS, priority=Priority.FILE)


@dataclass(frozen=True, slots=True)
class Answer:
    latency_s: float
    """Seconds from the first byte sent to the last byte received."""
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class ClientLoad:
    url: str
    files: tuple[bytes, ...]
    n_requests: int
    n_at_once: int
    """Concurrent requests of this process."""


@benchmark_command()
@click.option("--model", default="random:large-v3", show_default=True)
@click.option("--concurrency", default=64, show_default=True, help="Number of concurrent requests.")
@click.option("--requests", default=16, show_default=True, help="Requests for each concurrent one.")
@click.option("--processes", default=8, show_default=True, help="Client processes.")
@click.option(
    "--audio-s", type=click.FloatRange(1, MAX_CLIP_S), default=7.0, show_default=True, help="Seconds of a request."
)
@click.option("--container", type=click.Choice(("wav", "flac")), default="wav", show_default=True)
@click.option("--slots", default=64, show_default=True)
@click.option("--max-encode-batch", default=16, show_default=True)
@result_options("rest_throughput")
@serve_arguments_argument
def main(
    model: str,
    concurrency: int,
    requests: int,
    processes: int,
    audio_s: float,
    container: str,
    slots: int,
    max_encode_batch: int,
    path: Path,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Measure the engine, then the service around it, with the same requests."""
    prepare_environment()
    config = EngineConfig(model=model, n_slots=slots, max_encode_batch=max_encode_batch)
    clips, n_requests, spawn = (
        speech_clips(N_CLIPS, audio_s),
        requests * concurrency,
        multiprocessing.get_context("spawn"),
    )
    result: dict[str, Any] = {**machine.describe(), "model": model, "concurrency": concurrency}
    result |= {"audio_s": audio_s, "container": container}
    with ProcessPoolExecutor(1, spawn) as pool:
        result["engine"] = pool.submit(measure_engine, config, clips, concurrency, n_requests).result()
    same = [f"--model={model}", f"--slots={slots}", f"--max-encode-batch={max_encode_batch}"]
    same += [f"--max-uploads={2 * concurrency}"]
    files = [encoded(clip, container) for clip in clips]
    with (
        running_server([*same, *serve_arguments]) as server,
        ProcessPoolExecutor(processes, spawn) as pool,
    ):
        measure_service(server, pool, files, concurrency, 2 * concurrency, processes)
        result["service"] = measure_service(server, pool, files, concurrency, n_requests, processes)
    result["ratio"] = result["service"]["requests_per_s"] / result["engine"]["requests_per_s"]
    report.finish([table(result)], result, complain(result), as_markdown=markdown, path=path)


def encoded(clip: Samples, container: str) -> bytes:
    """A clip as a file, in 16 bits."""
    wav = samples_to_wav(clip)
    if container == "wav":
        return wav
    file = BytesIO()
    with av.open(BytesIO(wav), "r") as source, av.open(file, "w", format="flac") as target:
        stream = target.add_stream("flac", rate=SAMPLE_RATE, layout="mono")
        for frame in source.decode(audio=0):
            target.mux(stream.encode(frame))
        target.mux(stream.encode(None))
    return file.getvalue()


def speech_clips(n: int, clip_s: float) -> list[Samples]:
    """`n` clips of bundled speech, this many seconds each, without a pause at which the service would cut."""
    pieces = [
        recording.samples[round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)]
        for recording in load_bundled(0.0, 4)
        for each in recording.utterances
        for start, end in each.spans
    ]
    clips = []
    for seed in range(n):
        random = np.random.default_rng(seed)
        row = [random.normal(0, NOISE, round(PAUSE_S * SAMPLE_RATE)).astype(np.float32)]
        while sum(map(len, row)) < clip_s * SAMPLE_RATE:
            row += [pieces[random.integers(len(pieces))] * random.uniform(0.5, 1.0), row[0]]
        clips.append(np.concatenate(row)[: round(clip_s * SAMPLE_RATE)].astype(np.float32))
    return clips


def measure_engine(config: EngineConfig, clips: list[Samples], concurrency: int, n_requests: int) -> dict[str, Any]:
    """Measure the engine through its own interface. Call it in a process of its own, whose end frees the device."""
    return uvloop.run(_measure_engine(config, clips, concurrency, n_requests))


async def _measure_engine(
    config: EngineConfig, clips: list[Samples], concurrency: int, n_requests: int
) -> dict[str, Any]:
    from tutti_server.engine.engine import Engine

    async with Engine.start(config) as engine:
        work = Speech(len(clips[0]) / SAMPLE_RATE, 0, clips)
        work = replace(work, n_tokens=await _count_tokens(engine, work.window(0)))
        await apply_load(engine, concurrency, 2 * concurrency, work)
        load = await apply_load(engine, concurrency, n_requests, work)
    return {
        "requests_per_s": load.requests_per_s,
        "p50_s": load.p50_s,
        "p95_s": load.p95_s,
        "tokens_per_request": work.n_tokens,
        "wrong_length": load.wrong_length,
    }


async def _count_tokens(engine: Transcriber, window: Window) -> int:
    """The number of tokens sampled for a window, including the end token."""
    async with engine.submit(window) as events:
        (n_tokens,) = [event.n_steps + 1 async for event in events if isinstance(event, DoneEvent)]
    return n_tokens


def measure_service(
    server: RunningServer,
    pool: ProcessPoolExecutor,
    files: list[bytes],
    concurrency: int,
    n_requests: int,
    processes: int,
) -> dict[str, Any]:
    """Send requests with `concurrency` of them under way at any time, and return their figures and the server's."""
    # A process without a request at a time would send none of its share.
    n = min(processes, concurrency)
    shares = [
        ClientLoad(server.url, tuple(files[k::n] or files), _share(n_requests, k, n), _share(concurrency, k, n))
        for k in range(n)
    ]
    before = _settled_counters(server)
    cpu_before_s, started_at = _cpu_s(server), time.perf_counter()
    answers = [answer for part in pool.map(send_requests, shares) for answer in part]
    wall_s = time.perf_counter() - started_at
    cpu_s, counters = _cpu_s(server) - cpu_before_s, _settled_counters(server) - before
    latencies_s = [answer.latency_s for answer in answers if not answer.failure]
    return {
        "requests_per_s": len(latencies_s) / wall_s,
        "p50_s": percentile(latencies_s, 50),
        "p95_s": percentile(latencies_s, 95),
        "answered": len(latencies_s),
        "failures": [answer.failure for answer in answers if answer.failure],
        "windows": counters.value("tutti_engine_windows_total", how="done"),
        "tokens_per_request": counters.value(TOKENS) / max(len(latencies_s), 1),
        "cpu_s_per_request": cpu_s / max(len(latencies_s), 1),
    }


def _settled_counters(server: RunningServer) -> Counters:
    """The counters of the server, once those of its engine no longer change."""
    counters = Counters.parse(server.fetch("/metrics"))
    while True:
        time.sleep(SETTLED_S)
        earlier, counters = counters, Counters.parse(server.fetch("/metrics"))
        if not (counters - earlier).value(TOKENS):
            return counters


def send_requests(load: ClientLoad) -> list[Answer]:
    return uvloop.run(_send_requests(load))


async def _send_requests(load: ClientLoad) -> list[Answer]:
    answers: list[Answer] = []
    # Encoded before: what a client process does for one request delays the others that it sends.
    forms = [httpx.Request("POST", load.url, data=FIELDS, files={"file": ("clip", file)}) for file in load.files]
    async with open_client(load.url, n_at_once=load.n_at_once, timeout_s=TIMEOUT_S) as client:
        bodies = [(form.read(), form.headers["content-type"]) for form in forms]

        async def send(index: int) -> None:
            answers.append(await transcribe(client, *bodies[index % len(bodies)]))

        await side_by_side(range(load.n_requests), load.n_at_once, send)
    return answers


async def transcribe(client: httpx.AsyncClient, body: bytes, content_type: str) -> Answer:
    """Send one request. Errors are returned in the answer, not raised."""
    started_at, failure = time.perf_counter(), None
    try:
        response = await client.post(PATH, content=body, headers={"content-type": content_type})
        if not (response.is_success and "text" in response.json()):
            failure = f"HTTP {response.status_code}: {response.text[:MAX_ERROR_CHARS]}"
    except (httpx.HTTPError, ValueError) as error:
        failure = f"{type(error).__name__}: {error}"
    return Answer(time.perf_counter() - started_at, failure)


def complain(result: dict[str, Any]) -> list[str]:
    engine, service = result["engine"], result["service"]
    found = [f"failed: {failure}" for failure in service["failures"][:N_SHOWN_FAILURES]]
    if service["windows"] != service["answered"]:
        found.append(f"expected a window for each request, got {service['windows']:.0f} for {service['answered']}")
    if engine["wrong_length"]:
        found.append(f"{engine['wrong_length']} of the engine's requests got a different number of tokens")
    if abs(service["tokens_per_request"] - engine["tokens_per_request"]) > MAX_TOKENS_APART:
        found.append(
            f"tokens per request: {service['tokens_per_request']:.2f} in the service, "
            f"{engine['tokens_per_request']} in the engine"
        )
    return found


def table(result: dict[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = []
    for title, row in (("engine", result["engine"]), ("service", result["service"])):
        rows.append(
            (
                title,
                number(row["requests_per_s"], 1),
                number(row["p50_s"], 3),
                number(row["p95_s"], 3),
                number(row["tokens_per_request"], 1),
                number(1000 * row["cpu_s_per_request"], 1) if "cpu_s_per_request" in row else report.NO_VALUE,
            )
        )
    return Table(
        f"{result['model']}, {result['concurrency']} concurrent requests, {result['audio_s']:.0f} s of speech in "
        f"{result['container'].upper()}: "
        f"the service reaches {100 * result['ratio']:.1f} % of the engine's throughput",
        ("", "req/s", "p50 s", "p95 s", "tokens", "server CPU\nms each"),
        rows,
    )


def _share(n: int, k: int, parts: int) -> int:
    return n // parts + (k < n % parts)


def _cpu_s(server: RunningServer) -> float:
    return machine.family_cpu_s(server.pid) or 0.0


if __name__ == "__main__":
    main()
