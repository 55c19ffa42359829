"""The benchmark of the engine, at the smallest size and on the CPU."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import engine_throughput
from benchmarks.engine_throughput import complain, main, shares

SMALLEST = ["--models", "random:tiny", "--concurrency", "2", "--requests", "1", "--slots", "2", "--device", "cpu"]


@pytest.fixture(autouse=True)
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_throughput, "MIN_REQUESTS", 4)
    monkeypatch.setattr(engine_throughput, "WARM_UP_S", 0.1)


def test_every_request_gets_its_tokens(tmp_path: Path) -> None:
    """Random weights end after 28 tokens by themselves, and the benchmark lets them go on."""
    path = tmp_path / "a.json"
    ran = CliRunner().invoke(main, [*SMALLEST, "--audio-s", "0.5", "--tokens", "40", "--markdown", "--json", str(path)])
    assert ran.exit_code == 0, ran.output
    (load,) = json.loads(path.read_text())["loads"]
    assert (load["model"], load["concurrency"], load["wrong_length"]) == ("random:tiny", 2, 0)
    assert load["decode_batch"] > 1
    assert 0 < load["requests_per_s"] < load["floor_requests_per_s"]
    assert "| random:tiny | 2 |" in ran.output


def test_the_time_is_shared_out_among_the_stages() -> None:
    """64 requests at 128 a second take 500 ms, of which so many are left to the host."""
    timed = {("encode", 16): 80.0, ("prefill", 64): 10.0, ("steps ahead", 64): 5.0}
    result = {
        "tokens": 25,
        "loads": [{"model": "m", "concurrency": n, "requests_per_s": 128.0} for n in (1, 64)],
        "stages": [{"model": "m", "stage": stage, "size": size, "ms": ms} for (stage, size), ms in timed.items()],
    }
    assert shares(result) == [("m", "64", "500", "64", "2", "24", "10")]


@pytest.mark.parametrize("device", ["cpu", "NVIDIA H200"])
def test_more_than_the_limit_fails_it(device: str) -> None:
    row = {"model": "m", "concurrency": 8, "wrong_length": 0, "requests_per_s": 10.0}
    loads, ablation = [{**row, "floor_requests_per_s": 10.1}], [{**row, "floor_requests_per_s": 9.9}]
    result = {"machine": {"device": device}, "loads": loads, "ablation": ablation}
    (complaint,) = complain(result)
    assert "10.0 req/s are more than the limit of 9.9" in complaint
