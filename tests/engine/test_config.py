"""Settings are checked when they are made."""

import pytest

from tutti_server.engine.config import Device, Dtype, EngineConfig


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


@pytest.mark.parametrize(
    ("device", "dtype", "expected"),
    [
        ("cpu", "float16", "float32, bfloat16 or int8 on the CPU"),
        ("cuda", "int8", "float32, bfloat16 or float16 on CUDA"),
    ],
)
def test_types_that_a_device_does_not_have_are_refused(device: Device, dtype: Dtype, expected: str) -> None:
    with pytest.raises(ValueError, match=f"dtype: expected {expected}, got {dtype!r}"):
        EngineConfig(device=device, dtype=dtype)
