"""Settings are checked when they are made; the plain half of the engine does without torch."""

import subprocess
import sys

import pytest

from tutti_server.engine.config import EngineConfig


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("model", "", "a name or a folder"),
        ("device", "tpu", "one of auto, cpu, cuda"),
        ("dtype", "int4", "one of auto, float32, bfloat16, float16, int8"),
        ("audio_context", "short", "one of auto, interims, full"),
        ("n_slots", 0, "at least 1"),
        ("max_encode_batch", 0, "at least 1"),
        ("max_waiting", 0, "at least 1"),
        ("n_threads", 0, "at least 1"),
        ("max_wait_ms", -1, "at least 0"),
        ("max_decode_stall_ms", -1, "at least 0"),
        ("min_decode_share", 1.0, "below 1"),
    ],
)
def test_values_out_of_range_are_refused(field: str, value: object, expected: str) -> None:
    """The message names the field, what was expected and what came."""
    with pytest.raises(ValueError, match=f"{field}: expected .*{expected}, got {value!r}"):
        EngineConfig(**{field: value})  # type: ignore[arg-type]


def test_float16_needs_cuda() -> None:
    """Where the CPU was asked for."""
    with pytest.raises(ValueError, match="dtype: expected float32, bfloat16 or int8 on the CPU, got 'float16'"):
        EngineConfig(device="cpu", dtype="float16")


def test_int8_needs_a_cpu() -> None:
    """Where CUDA was asked for."""
    with pytest.raises(ValueError, match="dtype: expected float32, bfloat16 or float16 on CUDA, got 'int8'"):
        EngineConfig(device="cuda", dtype="int8")


@pytest.mark.parametrize(
    "module",
    [
        "tutti_server.engine.api",
        "tutti_server.engine.errors",
        "tutti_server.engine.config",
        "tutti_server.engine.checkpoint.catalog",
        "tutti_server.engine.scheduling.batcher",
        "tutti_server.engine.checkpoint.checkpoint",
        "tutti_server.engine.model.audio_context",
    ],
)
def test_plain_modules_do_not_import_torch(module: str) -> None:
    """So that the service can be run and tested without it."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
