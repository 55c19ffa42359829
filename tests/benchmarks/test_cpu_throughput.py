"""The comparison on CPUs: its turns and ratios, and the weights that both engines get."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import torch
from click import ClickException

from benchmarks.cpu_throughput import PEER, table, take_turns
from benchmarks.own_process import Load, Turn, own_process
from benchmarks.peers.random_checkpoint import published_weights
from tutti_server.engine.checkpoint.checkpoint import ModelConfig
from tutti_server.engine.model.random_weights import fill
from tutti_server.engine.model.weights import published_parameters
from tutti_server.engine.model.whisper import build

SIZES = ModelConfig(
    d_model=64,
    n_mels=80,
    encoder_layers=1,
    encoder_attention_heads=2,
    encoder_ffn_dim=128,
    decoder_layers=1,
    decoder_attention_heads=2,
    decoder_ffn_dim=128,
    vocab_size=200,
    max_source_positions=1500,
    max_target_positions=448,
)


def test_engines_take_turns_and_ratios_are_to_the_fastest_peer() -> None:
    """The median of the turns counts. A warm-up comes before them."""
    order: list[str] = []

    def engine(name: str, speeds: list[float]) -> Callable[..., Turn]:
        answers = iter([1.0, *speeds])

        def load(n_requests: int, concurrency: int) -> Turn:
            order.append(f"{name} {n_requests}/{concurrency}")
            return Turn(None, n_requests / next(answers), 4.0)

        return load

    loads = {
        "tutti int8": engine("t", [4.0, 2.0, 3.0]),
        f"{PEER} int8": engine("p", [2.0, 1.0, 2.0]),
        f"{PEER} float32": engine("q", [1.0, 1.0, 1.0]),
    }
    rows = take_turns("random:base", loads, [8], n_requests=3, repeats=3)
    assert order == ["t 8/8", "p 8/8", "q 8/8"] * 4
    assert [(row["requests_per_s"], row["ratio"]) for row in rows] == [(3.0, 1.5), (2.0, 1.0), (1.0, 0.5)]
    shown = table({"threads": 2, "loads": rows})
    assert shown.rows[0] == ("random:base, tutti int8", "8", "3.00", "2.00 to 4.00", "1.50", "0.50")


def open_stand_in(stack: ExitStack, name: str, speed: float) -> Load:
    """Fails when it is given no request."""
    stack.callback(print, f"{name} ends")

    def load(n_requests: int, concurrency: int) -> float:
        assert n_requests
        return speed / concurrency

    return load


def test_an_engine_runs_in_a_process_of_its_own() -> None:
    """It takes turns with others, and an engine that fails ends the run with a sentence."""
    with own_process(open_stand_in, "a", 4.0) as first, own_process(open_stand_in, "b", 1.0) as second:
        turns = [first(2, 1), second(2, 1), first(2, 2)]
        assert [turn.value for turn in turns] == [4.0, 1.0, 2.0]
        assert all(turn.wall_s > 0 and turn.cpu_s >= 0 for turn in turns)
        with pytest.raises(ClickException, match=r"the process of open_stand_in\('b', 1.0\) ended"):
            second(0, 1)


def test_published_weights_are_ours_by_other_names() -> None:
    """Where a checkpoint is loaded, each has its place. Keys have a bias of zeros."""
    model = build(SIZES, torch.device("cpu"), torch.float32)
    fill(model)
    published = {name.removeprefix("model."): weight for name, weight in published_weights(model.state_dict()).items()}
    for name, weight in published_parameters(model.state_dict()):
        assert torch.equal(published.pop(name, torch.zeros_like(weight)), weight)
    assert not published


def test_the_processes_of_engines_load_no_library_before_their_environment_is_set() -> None:
    """They import the module first, and PyTorch reads its thread settings once."""
    code = "import sys, benchmarks.cpu_throughput, benchmarks.offline; print({'torch', 'ctranslate2'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
