"""The benchmark of the engine, at the smallest size and on the CPU."""

import json
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


def test_what_a_machine_cannot_do_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [variant for variant in engine_throughput.VARIANTS if "Flash" in variant.name]
    monkeypatch.setattr(engine_throughput, "VARIANTS", kept)
    options = ["--audio-s", "0.5", "--tokens", "2", "--ablation", "--json", str(tmp_path / "a.json")]
    ran = CliRunner().invoke(main, [*SMALLEST, *options])
    assert ran.exit_code == 0, ran.output
    assert (
        "random:tiny with FlashInfer's attention: not available here: kernels flashinfer: expected 16 bits"
        in ran.output
    )


def test_requests_may_have_beams(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    ran = CliRunner().invoke(main, [*SMALLEST, "--beams", "2", "--slots", "4", "--json", str(path)])
    assert ran.exit_code == 0, ran.output
    result = json.loads(path.read_text())
    assert result["beams"] == 2
    assert result["loads"][0]["decode_batch"] > 0


def test_other_numbers_of_tokens_fail_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the model had ended by itself."""
    monkeypatch.setattr(Work, "window", lambda self, index: Work(0.5, 2).window_of(index, 2))
    ran = CliRunner().invoke(main, [*SMALLEST, "--tokens", "3", "--json", str(tmp_path / "a.json")])
    assert ran.exit_code == 1
    assert "4 requests got a number of tokens other than they asked for" in ran.output


def test_the_preset_decodes_every_request_to_its_own_length(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    shape = ["--preset", "mlperf-shaped", "--clips", "5", "--mean-tokens", "9"]
    models = ["--models", "random:tiny", "--concurrency", "2", "--slots", "2", "--device", "cpu"]
    ran = CliRunner().invoke(main, [*models, *shape, "--json", str(path)])
    assert ran.exit_code == 0, ran.output
    result = json.loads(path.read_text())
    (load,) = result["loads"]
    assert load["wrong_length"] == 0
    assert load["tokens_per_request"] == result["tokens"] == pytest.approx(9, abs=1)
    assert "mlperf-shaped, not a result of MLPerf" in ran.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--preset", "mlperf-shaped", "--tokens", "9"], "--tokens: the preset sets it"),
        (["--mean-tokens", "9"], "expected --preset beside them"),
        (["--profile", "a.json"], "--profile: expected one of --models and one --concurrency"),
        (["--nvtx", "--device", "cpu"], "--nvtx: expected a device with CUDA, got a CPU"),
        (["--preset", "mlperf-shaped", "--clips", "5000"], "requests: expected 1 to 1633, got 5000"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options: list[str], message: str) -> None:
    ran = CliRunner().invoke(main, options)
    assert ran.exit_code == 2
    assert message in ran.output


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
    options = ["--audio-s", "0.5", "--tokens", "3", "--profile", str(trace), "--json", str(tmp_path / "a.json")]
    ran = CliRunner().invoke(main, [*SMALLEST, *options])
    assert ran.exit_code == 0, ran.output
    names = [event.get("name", "") for event in json.loads(trace.read_text())["traceEvents"]]
    assert names.count("launch a step") == 5
    # A request has two steps and two are under way, so that another one is encoded within five.
    assert any(name.startswith("begin to encode ") for name in names)
    assert "collect encoded windows" in names
    assert "aten::scaled_dot_product_attention" in names
    assert "Profile of 5 steps: own time on the CPU" in ran.output
