"""The benchmark of the engine, at the smallest size and on the CPU."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import engine_throughput
from benchmarks.engine_throughput import complain, main, shares
from benchmarks.throughput import profiling
from benchmarks.throughput.work import Work

SMALLEST = ["--models", "random:tiny", "--concurrency", "2", "--requests", "1", "--slots", "2", "--device", "cpu"]


@pytest.fixture(autouse=True)
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_throughput, "MIN_REQUESTS", 4)
    monkeypatch.setattr(engine_throughput, "WARM_UP_S", 0.1)


def test_the_time_is_shared_out_among_the_stages() -> None:
    """64 requests at 128 a second take 500 ms, of which so many are left to the host."""
    timed = {("encode", 16): 80.0, ("prefill", 64): 10.0, ("steps ahead", 64): 5.0}
    result = {
        "loads": [{"model": "m", "concurrency": n, "requests_per_s": 128.0} for n in (1, 64)],
        "stages": [{"model": "m", "stage": stage, "size": size, "ms": ms} for (stage, size), ms in timed.items()],
    }
    assert shares(result) == [("m", "64", "500", "64", "2", "23", "11")]


@pytest.mark.parametrize(("n_tokens", "exit_code"), [(28, 0), (3, 1)])
def test_every_request_gets_its_tokens(
    n_tokens: int, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random weights end after 28 tokens by themselves, and the benchmark lets them go on. Other numbers fail it."""
    own = Work.window
    monkeypatch.setattr(Work, "window", lambda self, index: own(replace(self, audio_s=0.5, n_tokens=n_tokens), index))
    monkeypatch.setattr(engine_throughput, "N_TOKENS", 28)
    path = tmp_path / "a.json"
    ran = CliRunner().invoke(main, [*SMALLEST, "--beams", "2", "--slots", "4", "--markdown", "--json", str(path)])
    assert ran.exit_code == exit_code, ran.output
    (load,) = json.loads(path.read_text())["loads"]
    assert (load["concurrency"], load["wrong_length"]) == (2, 4 * exit_code)
    assert "| random:tiny | 2 |" in ran.output
    assert ("4 requests got a number of tokens other than they asked for" in ran.output) == bool(exit_code)


@pytest.mark.parametrize("device", ["cpu", "NVIDIA H200"])
def test_more_than_the_limit_fails_it(device: str) -> None:
    row = {"model": "m", "concurrency": 8, "wrong_length": 0, "requests_per_s": 10.0}
    loads, ablation = [{**row, "floor_requests_per_s": 10.1}], [{**row, "floor_requests_per_s": 9.9}]
    result = {"machine": {"device": device}, "loads": loads, "ablation": ablation}
    (complaint,) = complain(result)
    assert "10.0 req/s are more than the limit of 9.9" in complaint


def test_a_profile_names_the_calls_of_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace has the given number of steps, and the operations within them."""
    monkeypatch.setattr(profiling, "MAX_STEPS", 5)
    trace = tmp_path / "trace.json"
    monkeypatch.setattr(engine_throughput, "AUDIO_S", 0.5)
    monkeypatch.setattr(engine_throughput, "N_TOKENS", 3)
    options = ["--profile", str(trace), "--json", str(tmp_path / "a.json")]
    ran = CliRunner().invoke(main, [*SMALLEST, *options])
    assert ran.exit_code == 0, ran.output
    names = [event.get("name", "") for event in json.loads(trace.read_text())["traceEvents"]]
    assert names.count("launch a step") == 5
    # A request has two steps and two are under way, so that another one is encoded within five.
    assert any(name.startswith("begin to encode ") for name in names)
    assert "collect encoded windows" in names
    assert "aten::scaled_dot_product_attention" in names
