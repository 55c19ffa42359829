"""Requests per second of the engine and of faster-whisper's engine on a CPU, with the same random weights, in turns.

    python -m benchmarks.cpu_throughput --models random:base --threads 2 --concurrency 1,8

Each request is a full window of 30 s, from its audio to exactly 24 tokens. CTranslate2, which faster-whisper
runs, gets the weights of tutti's random checkpoint, converted by its own converter, and as many windows in a batch as
there are requests at a time. Every engine runs in its own process, with the thread settings that it has there. All
stay loaded and take turns, so that other work of the machine meets all of them. Ratios are to the fastest of
CTranslate2's types in the same table. Random weights tell nothing of accuracy.
"""

import asyncio
import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np
import uvloop

from benchmarks import machine, report
from benchmarks.engine_throughput import apply_load, running_engine
from benchmarks.options import benchmark_command, parse_numbers, result_options
from benchmarks.own_process import Load, Turn, own_process
from benchmarks.report import Table, number
from benchmarks.throughput.work import Work
from tutti_server.engine.api import WINDOW_SAMPLES
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.process_environment import prepare_environment

PEER = "ctranslate2"
N_TOKENS = 24


def open_tutti(stack: ExitStack, model: str, dtype: str, n_threads: int, work: Work) -> Load:
    """The engine, asked through its own interface."""
    prepare_environment()
    from tutti_server.engine.model.random_weights import let_go_on

    config = EngineConfig(
        model=model,
        device="cpu",
        dtype=dtype,  # type: ignore[arg-type]  # checked by the config
        n_threads=n_threads,
        n_slots=8,
        audio_context="full",
    )
    runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
    running = running_engine(config, lambda loaded: let_go_on(loaded.model))
    engine, _ = runner.run(running.__aenter__())
    stack.callback(lambda: runner.run(running.__aexit__(None, None, None)))

    def load(n_requests: int, concurrency: int) -> None:
        assert not runner.run(apply_load(engine, concurrency, n_requests, work)).wrong_length

    return load


def open_peer(stack: ExitStack, folder: str, dtype: str, n_threads: int, work: Work) -> Load:
    """CTranslate2 with faster-whisper's features, greedy."""
    import ctranslate2
    from faster_whisper.feature_extractor import FeatureExtractor

    model = ctranslate2.models.Whisper(folder, device="cpu", compute_type=dtype, intra_threads=n_threads)
    extract = FeatureExtractor(feature_size=80)
    audio = 0.1 * np.random.default_rng(0).standard_normal(WINDOW_SAMPLES).astype(np.float32)
    names = ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]

    def load(n_requests: int, concurrency: int) -> None:
        for _ in range(n_requests // concurrency):
            features = np.stack([extract(audio)[:, :3000] for _ in range(concurrency)])
            found = model.generate(
                ctranslate2.StorageView.from_array(features),
                [names] * concurrency,
                beam_size=1,
                max_length=2 * work.n_tokens,  # of which it takes half for new tokens
                suppress_blank=False,
                suppress_tokens=[model_end(folder)],
            )
            lengths = {len(each.sequences_ids[0]) for each in found}
            if lengths != {work.n_tokens}:
                raise click.ClickException(f"{PEER}: expected {work.n_tokens} tokens for each request, got {lengths}")

    return load


def model_end(folder: str) -> int:
    """The id of the end token, which is suppressed so that no request ends early."""
    from tokenizers import Tokenizer

    end: int | None = Tokenizer.from_file(str(Path(folder) / "tokenizer.json")).token_to_id("<|endoftext|>")
    assert end is not None
    return end


@benchmark_command(needs=("ctranslate2", "faster_whisper", "transformers"))
@click.option("--models", default="random:base", show_default=True, help="Random checkpoints, by commas.")
@click.option("--threads", default=2, show_default=True, help="CPU threads of each engine.")
@click.option("--concurrency", default="1,8", show_default=True, help="Numbers of requests at a time.")
@click.option("--requests", default=8, show_default=True, help="Least number of requests of one turn.")
@click.option("--repeats", default=3, show_default=True, help="Turns of each engine. The median counts.")
@click.option("--dtypes", default="float32,int8", show_default=True, help="Types of tutti.")
@click.option("--peer-dtypes", default="float32,int8", show_default=True, help="Types of CTranslate2.")
@result_options("cpu_throughput")
def main(
    models: str,
    threads: int,
    concurrency: str,
    requests: int,
    repeats: int,
    **others: Any,
) -> None:
    """Measure requests per second on a CPU, beside faster-whisper's engine."""
    # It loads PyTorch. The processes of the engines import this module too, and set their environment before that.
    from benchmarks.peers.random_checkpoint import write_checkpoint

    levels = parse_numbers("--concurrency", concurrency)
    result: dict[str, Any] = {**machine.describe(), "threads": threads, "loads": []}
    for model in models.split(","):
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            converted = write_checkpoint(model, Path(folder))
            work = Work(30.0, N_TOKENS)
            loads = {
                f"{name} {dtype}": stack.enter_context(own_process(open_engine, source, dtype, threads, work))
                for name, open_engine, source, dtypes in (
                    ("tutti", open_tutti, model, others["dtypes"]),
                    (PEER, open_peer, converted, others["peer_dtypes"]),
                )
                for dtype in dtypes.split(",")
            }
            result["loads"] += take_turns(model, loads, levels, requests, repeats)
    report.show([table(result)], result, as_markdown=others["markdown"], path=others["path"])


def take_turns(
    model: str, loads: dict[str, Callable[..., Turn]], levels: Sequence[int], n_requests: int, repeats: int
) -> list[dict[str, Any]]:
    """Each engine's requests per second at each level: of every turn, and their median."""
    rows = []
    for level in levels:
        found: dict[str, list[float]] = {name: [] for name in loads}
        cpu_s: dict[str, list[float]] = {name: [] for name in loads}
        size = math.ceil(n_requests / level) * level
        for load in loads.values():
            load(level, level)  # a warm-up
        for _ in range(repeats):
            for name, load in loads.items():
                turn = load(size, level)
                found[name].append(size / turn.wall_s)
                cpu_s[name].append(turn.cpu_s / size)
        medians = {name: statistics.median(turns) for name, turns in found.items()}
        best_peer = max(median for name, median in medians.items() if name.startswith(PEER))
        rows += [
            {
                "model": model,
                "engine": name,
                "concurrency": level,
                "requests_per_s": medians[name],
                "cpu_s_per_request": statistics.median(cpu_s[name]),
                "turns": turns,
                "ratio": medians[name] / best_peer,
            }
            for name, turns in found.items()
        ]
    return rows


def table(result: dict[str, Any]) -> Table:
    return Table(
        f"Requests per second on {result['threads']} threads",
        ("", "concurrent", "req/s", "slowest to fastest", "× best ctranslate2", "CPU s each"),
        [
            (
                f"{row['model']}, {row['engine']}",
                str(row["concurrency"]),
                number(row["requests_per_s"], 2),
                f"{min(row['turns']):.2f} to {max(row['turns']):.2f}",
                number(row["ratio"], 2),
                number(row["cpu_s_per_request"], 2),
            )
            for row in result["loads"]
        ],
    )


if __name__ == "__main__":
    main()
