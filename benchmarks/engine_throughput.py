"""Measures how many windows the engine transcribes per second, beside the limit set by arithmetic and memory.

    python -m benchmarks.engine_throughput --models random:large-v3,random:turbo --concurrency 1,64
    python -m benchmarks.engine_throughput --preset mlperf-shaped --concurrency 64,128 --slots 128

Each request is a full 30 s window with `--audio-s` seconds of noise and is decoded to exactly `--tokens` tokens. With
`--preset mlperf-shaped` lengths differ as in MLPerf Inference's Whisper benchmark; figures are no results of MLPerf.
Requests go through the engine's own interface, with `--concurrency` of them under way at any time. `--stages` also
times each stage alone. `--ablation` also runs the engine with each of its optimisations switched off in turn.
`--profile FILE` writes a Chrome trace of 100 steps, after the measurement; `--nvtx` names the calls of the engine's
thread for Nsight Systems.

The command exits with 1 when a request got another number of tokens than it asked for, or when a device was
faster than the limit, which is that of an NVIDIA H200: then work was skipped, and the figures are wrong.
"""

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import uvloop

from benchmarks import machine, report
from benchmarks.options import (
    benchmark_command,
    parse_numbers,
    result_options,
)
from benchmarks.report import Table, number
from benchmarks.scoring import percentile
from benchmarks.throughput import mlperf_shape
from benchmarks.throughput.floor import lower_bound_s, precision_of
from benchmarks.throughput.profiling import Recorder
from benchmarks.throughput.work import Work
from tutti_server.engine.api import DoneEvent, EngineStats, Transcriber
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.decoding.prompt import Prompt
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.process_environment import prepare_environment

if TYPE_CHECKING:
    from tutti_server.engine.engine import Engine
    from tutti_server.engine.runner import Runner

LIMIT_OF = "H200"
"""In the name of the GPU whose limit is computed. Other GPUs may be faster, and a CPU is not."""
REPEATS = 5
"""Measured runs of each stage; the median counts."""
WARM_UP_S = 2.0
"""Seconds of load before a measurement, so that the batcher has seen all clients."""
MIN_REQUESTS = 24
"""Least number of requests for a figure."""
MAX_ENCODED = 16
"""Most windows in one encoder call when stages are timed."""


def sample_on_host(runner: "Runner") -> None:
    """Make the runner sample on the host: copy all logits there, choose the most likely token, and copy it back."""
    import torch

    tokens, positions = runner.states.tokens, runner.states.positions

    def sample(logits: torch.Tensor) -> torch.Tensor:
        on_host = logits.cpu()
        best = on_host.argmax(dim=-1)
        tokens[: len(best)] = best.to(tokens.device)
        positions[: len(best)] += 1
        return torch.stack([best.float(), on_host.log_softmax(dim=-1).amax(dim=-1)]).to(logits.device)

    if runner.cuda_forward is not None:
        runner.cuda_forward.sample = sample  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    changes: dict[str, Any]
    """Fields of `EngineConfig` that differ."""
    prepare: Callable[["Runner"], None] = lambda runner: None
    """Changes the runner before the engine uses it."""


VARIANTS = (
    Variant("without CUDA graphs", {"cuda_graphs": False}),
    Variant("without fused kernels and graphs", {"kernels": "torch"}),
    Variant("without one kernel for a step of few rows", {"one_kernel_steps": False}),
    Variant("without batched encoder", {"max_encode_batch": 1}),
    Variant("without steps ahead", {"steps_ahead": False}),
    Variant("with sampling on the host", {"steps_ahead": False}, sample_on_host),
    Variant("with FlashInfer's attention", {"kernels": "flashinfer"}),
)


@dataclass(frozen=True, slots=True)
class Observation:
    """How to look into a run."""

    trace: Path | None = None
    """Where a Chrome trace goes."""
    with_nvtx: bool = False
    """Whether the engine's calls are NVTX ranges."""
    tables: list[Table] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    concurrency: int
    requests_per_s: float
    p50_s: float | None
    p95_s: float | None
    tokens_per_request: float
    """Mean of the tokens that requests were really decoded to, end tokens included."""
    wrong_length: int
    """Requests that did not get the requested number of tokens."""
    decode_batch: float
    encode_batch: float
    encode_share: float
    """Share of the time in encoder calls and the prefill after them."""
    decode_share: float
    """Share of the time in decode steps."""


async def apply_load(engine: Transcriber, concurrency: int, n_requests: int, work: Work) -> LoadResult:
    windows = [work.window(index) for index in range(work.n_windows(concurrency, n_requests))]
    latencies: list[float] = []
    n_wrong = n_tokens = 0
    order = iter(range(n_requests))

    async def client(number: int) -> None:
        nonlocal n_wrong, n_tokens
        for index in order:
            start_s = time.perf_counter()
            which = index % len(windows)
            window = replace(windows[which], session=f"client {number}")
            async with engine.submit(window) as events:
                async for event in events:
                    if isinstance(event, DoneEvent):
                        n_decoded = event.n_steps + 1
                        n_tokens += n_decoded
                        # What is handed out is counted as well: an end token is not, and a step could do nothing.
                        n_given = sum(len(piece.tokens) for piece in event.pieces) + (not event.is_truncated)
                        n_wrong += {n_decoded, n_given} != {work.n_tokens_of(which)} or event.is_repetitive
            latencies.append(time.perf_counter() - start_s)

    before, start_s = engine.stats(), time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(concurrency)))
    elapsed_s, after = time.perf_counter() - start_s, engine.stats()
    return LoadResult(
        concurrency=concurrency,
        requests_per_s=n_requests / elapsed_s,
        p50_s=percentile(latencies, 50),
        p95_s=percentile(latencies, 95),
        tokens_per_request=n_tokens / n_requests,
        wrong_length=n_wrong,
        decode_batch=_mean(before, after, "decode_batch"),
        encode_batch=_mean(before, after, "encode_batch"),
        encode_share=(after.encode_s.total - before.encode_s.total) / elapsed_s,
        decode_share=(after.step_s.total - before.step_s.total) / elapsed_s,
    )


def _mean(before: EngineStats, after: EngineStats, name: str) -> float:
    first, last = getattr(before, name), getattr(after, name)
    count = sum(last.counts) - sum(first.counts)
    return (last.total - first.total) / count if count else 0.0


def time_stages(runner: "Runner", work: Work) -> list[tuple[str, int, float]]:
    """Time each stage alone. Returns the stage, the number of windows or sequences, and the milliseconds."""
    from tutti_server.engine.decoding.sampling import Draw

    window = work.window(0).samples
    token = runner.checkpoint.tokenizer.sot
    found = []

    def median_ms(body: Callable[[], object]) -> float:
        times = []
        for _ in range(REPEATS + 1):
            runner.synchronize()
            start_s = time.perf_counter()
            body()
            runner.synchronize()
            times.append(time.perf_counter() - start_s)
        return 1000 * statistics.median(times[1:])

    for size in (size for size in (1, 2, 4, 8, 16, 32, 64) if size <= runner.slots.n_free):
        slots = [runner.slots.allocate() for _ in range(size)]
        for first in range(0, size, MAX_ENCODED):
            part = slots[first : first + MAX_ENCODED]
            encode_ms = median_ms(partial(runner.encode, [window] * len(part), part))
        if size <= MAX_ENCODED:
            found.append(("encode", size, encode_ms))
        prompt = Prompt(tokens=(token,) * 4, sot_index=0, with_timestamps=False)
        prefill = partial(_prefill, runner, slots, [prompt] * size, [Draw()] * size)
        found.append(("prefill", size, median_ms(prefill)))
        found.append(("step", size, median_ms(lambda: [runner.collect(runner.launch()) for _ in range(10)]) / 10))
        found.append(("steps ahead", size, median_ms(lambda: _collected(runner, 10)) / 10))
        for slot in slots:
            runner.release(slot)
    return found


def _prefill(runner: "Runner", *arguments: Any) -> None:
    runner.collect_prefill(runner.launch_prefill(*arguments))


def _collected(runner: "Runner", n_steps: int) -> None:
    for step in [runner.launch() for _ in range(n_steps)]:
        runner.collect(step)


@asynccontextmanager
async def running_engine(
    config: EngineConfig, prepare: Callable[["Runner"], None]
) -> AsyncIterator[tuple["Engine", "Runner"]]:
    """Run an engine until the block is left. Yields it with its runner."""
    from tutti_server.engine.engine import Engine
    from tutti_server.engine.runner import load_runner

    runners: list[Runner] = []

    def load(own: EngineConfig) -> "Runner":
        runners.append(load_runner(own))
        prepare(runners[0])
        return runners[0]

    # What the engine before this one has left: its objects refer to each other, and hold memory of the device.
    gc.collect()
    async with Engine.start(config, load) as engine:
        yield engine, runners[0]


async def measure(
    config: EngineConfig,
    concurrencies: list[int],
    work: Work,
    per_client: int,
    variant: Variant,
    observation: Observation | None = None,
) -> list[dict[str, Any]]:
    """The figures of one variant at each level of concurrency. A trace is recorded after the last measurement."""
    observation = observation or Observation()
    rows = []

    def prepare(runner: "Runner") -> None:
        from tutti_server.engine.model.random_weights import PREFIX, let_go_on

        if runner.checkpoint.name.startswith(PREFIX):
            let_go_on(runner.model)
        variant.prepare(runner)
        if observation.with_nvtx:
            Recorder(runner, with_nvtx=True)

    async with running_engine(replace(config, **variant.changes), prepare) as (engine, runner):
        for concurrency in concurrencies:
            warm_at = time.perf_counter() + WARM_UP_S
            while time.perf_counter() < warm_at:
                await apply_load(engine, concurrency, 2 * concurrency, work)
            n_requests = work.n_requests(max(per_client * concurrency, MIN_REQUESTS))
            load = await apply_load(engine, concurrency, n_requests, work)
            precision = precision_of(replace(config, **variant.changes))
            limit = 1 / lower_bound_s(runner.checkpoint.model, concurrency, work.lengths(n_requests), precision)
            rows.append({"model": config.model, "floor_requests_per_s": limit, **asdict(load)})
            print(f"{config.model} {variant.name}, {concurrency}: {load.requests_per_s:.1f} req/s", file=sys.stderr)
        if observation.trace:
            recorder = Recorder(runner, with_nvtx=False)
            recorder.request()
            while not recorder.has_ended:
                await apply_load(engine, concurrencies[-1], 2 * concurrencies[-1], work)
            recorder.write(observation.trace)
            observation.tables.append(recorder.table())
    return rows


def describe_device(config: EngineConfig) -> dict[str, Any]:
    import torch

    if not torch.cuda.is_available() or config.device == "cpu":
        return {"device": "cpu"}
    return {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda}


@benchmark_command()
@click.option("--models", default="random:large-v3,random:turbo", show_default=True, help="Models, by commas.")
@click.option("--concurrency", default="1,64", show_default=True, help="Numbers of concurrent requests.")
@click.option("--audio-s", default=7.0, show_default=True, help="Seconds of audio in a request's window of 30 s.")
@click.option("--tokens", default=24, show_default=True, help="Tokens of a request.")
@click.option("--beams", default=1, show_default=True, help="Beams of a request. They need as many slots each.")
@click.option("--requests", default=8, show_default=True, help="Requests of each client.")
@click.option("--slots", default=64, show_default=True)
@click.option("--max-encode-batch", default=16, show_default=True)
@click.option("--device", default="auto", show_default=True)
@click.option("--dtype", default="auto", show_default=True)
@click.option("--encoder-dtype", default="auto", show_default=True)
@click.option("--cross-cache", default="auto", show_default=True)
@click.option("--stages", is_flag=True, help="Also time the encoder, the prefill and decode steps alone.")
@click.option(
    "--ablation", is_flag=True, help="Also run the engine with each of its optimisations switched off in turn."
)
@click.option("--preset", type=click.Choice([mlperf_shape.NAME]), help="Requests of different lengths; see above.")
@click.option(
    "--clips", type=int, help=f"Requests of the preset at each level. Default: all {mlperf_shape.N_CLIPS} clips."
)
@click.option(
    "--profile", "trace", type=click.Path(path_type=Path), help="Write a Chrome trace of one model at one level."
)
@click.option("--nvtx", "with_nvtx", is_flag=True, help="Name the engine's calls with NVTX ranges. Needs CUDA.")
@result_options("engine_throughput")
def main(
    models: str,
    concurrency: str,
    audio_s: float,
    tokens: int,
    beams: int,
    requests: int,
    slots: int,
    max_encode_batch: int,
    device: str,
    dtype: str,
    encoder_dtype: str,
    cross_cache: str,
    stages: bool,
    ablation: bool,
    preset: str | None,
    clips: int | None,
    trace: Path | None,
    with_nvtx: bool,
    markdown: bool,
    path: Path,
) -> None:
    """Measure the throughput of the engine under load."""
    prepare_environment()
    work = preset_work(clips) if preset else Work(audio_s, tokens, n_beams=beams)
    if not preset and clips is not None:
        raise click.UsageError("--clips: expected --preset beside it")
    concurrencies = parse_numbers("--concurrency", concurrency)
    if trace and ("," in models or len(concurrencies) > 1):
        raise click.UsageError("--profile: expected one of --models and one --concurrency beside it")
    observation = Observation(trace, with_nvtx)
    result: dict[str, Any] = {
        **machine.describe(),
        "preset": preset,
        "tokens": work.mean_tokens,
        "beams": beams,
    }
    result |= {"loads": [], "stages": [], "ablation": []}
    for model in models.split(","):
        config = EngineConfig(
            model=model,
            device=device,  # type: ignore[arg-type]  # checked by the config
            dtype=dtype,  # type: ignore[arg-type]
            encoder_dtype=encoder_dtype,  # type: ignore[arg-type]
            cross_cache=cross_cache,  # type: ignore[arg-type]
            n_slots=slots,
            max_encode_batch=max_encode_batch,
            audio_context="full",
        )
        result["machine"] |= describe_device(config)
        if with_nvtx and result["machine"]["device"] == "cpu":
            raise click.UsageError("--nvtx: expected a device with CUDA, got a CPU")
        if stages:
            result["stages"] += _stages(config, work)
        result["loads"] += uvloop.run(measure(config, concurrencies, work, requests, Variant("", {}), observation))
        for variant in VARIANTS if ablation else ():
            try:
                rows = uvloop.run(measure(config, concurrencies, work, requests, variant))
            except CheckpointError as error:
                print(f"{model} {variant.name}: not available here: {error}", file=sys.stderr)
                continue
            result["ablation"] += [{"variant": variant.name, **row} for row in rows]
    tables = [*_tables(result), *observation.tables]
    report.finish(tables, result, complain(result), as_markdown=markdown, path=path)


def _stages(config: EngineConfig, work: Work) -> list[dict[str, Any]]:
    """The milliseconds of each stage alone, in a runner of its own."""
    from tutti_server.engine.runner import load_runner

    runner = load_runner(config)
    start_s = time.perf_counter()
    runner.warm_up()
    timed = [("warm up", 1, 1000 * (time.perf_counter() - start_s)), *time_stages(runner, work)]
    return [{"model": config.model, "stage": stage, "size": size, "ms": ms} for stage, size, ms in timed]


def preset_work(clips: int | None) -> Work:
    context = click.get_current_context()
    for name in ("audio_s", "tokens", "beams", "requests"):
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')}: the preset sets it; expected it without --preset")
    try:
        return mlperf_shape.mlperf_shaped(mlperf_shape.N_CLIPS if clips is None else clips)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def complain(result: dict[str, Any]) -> list[str]:
    rows = [*result["loads"], *result["ablation"]]
    found = []
    if n_wrong := sum(row["wrong_length"] for row in rows):
        found.append(f"{n_wrong} requests got a number of tokens other than they asked for")
    if result["machine"]["device"] == "cpu" or LIMIT_OF in result["machine"]["device"]:
        found += [
            f"{row['model']}, {row['concurrency']} concurrent: {row['requests_per_s']:.1f} req/s are more than "
            f"the limit of {row['floor_requests_per_s']:.1f}: work was skipped"
            for row in rows
            if row["requests_per_s"] > row["floor_requests_per_s"]
        ]
    return found


def _tables(result: dict[str, Any]) -> list[Table]:
    device = result["machine"]["device"]
    shape = f", lengths {result['preset']}, not a result of MLPerf" if result["preset"] else ""
    tables = [
        Table(
            f"Requests per second, {device}{shape}",
            ("", "concurrent", "tokens", "req/s", "limit", "of limit", "p50 s", "p95 s", "decode\nbatch",
             "encode\nbatch", "encode %", "decode %", "wrong\nlength"),
            [_row(row) for row in result["loads"]],
        )
    ]  # fmt: skip
    if result["ablation"]:
        effects = [
            (f"{row['model']} {row['variant']}", str(row["concurrency"]), number(row["requests_per_s"], 1))
            for row in result["ablation"]
        ]
        tables.append(Table("Effect of each optimisation", ("", "concurrent", "req/s"), effects))
    if result["stages"]:
        stages = [
            (f"{row['model']} {row['stage']}", str(row["size"]), number(row["ms"], 2), number(row["ms"] / row["size"]))
            for row in result["stages"]
        ]
        tables.append(Table("Stages alone", ("", "size", "ms", "ms each"), stages))
        columns = ("", "concurrent", "ms for all", "encode %", "prefill %", "steps %", "host and\nwaiting %")
        tables.append(Table("Share of the time of each stage, as timed alone", columns, shares(result)))
    return tables


def shares(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """The share of each stage in the time of one round of requests. In the rest of it the device waits for the host.

    A level of concurrency has a row if its stages were timed.
    """
    ms = {(stage["model"], stage["stage"], stage["size"]): stage["ms"] for stage in result["stages"]}
    rows: list[tuple[str, ...]] = []
    for load in result["loads"]:
        model, size = load["model"], load["concurrency"]
        at_once = min(size, MAX_ENCODED)
        names = [("encode", at_once), ("prefill", size), ("steps ahead", size)]
        if any((model, *name) not in ms for name in names):
            continue
        encode, prefill, step = (ms[model, *name] for name in names)
        all_ms = 1000 * size / load["requests_per_s"]
        parts = [encode * size / at_once, prefill, (result["tokens"] - 1) * step]
        percents = [100 * part / all_ms for part in (*parts, all_ms - sum(parts))]
        rows.append((model, str(size), number(all_ms, 0), *(number(percent, 0) for percent in percents)))
    return rows


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["model"],
        str(row["concurrency"]),
        number(row["tokens_per_request"], 1),
        number(row["requests_per_s"], 1),
        number(row["floor_requests_per_s"], 0),
        number(row["requests_per_s"] / row["floor_requests_per_s"]),
        number(row["p50_s"], 3),
        number(row["p95_s"], 3),
        number(row["decode_batch"], 1),
        number(row["encode_batch"], 1),
        number(100 * row["encode_share"], 0),
        number(100 * row["decode_share"], 0),
        str(row["wrong_length"]),
    )


if __name__ == "__main__":
    main()
