"""Settings are checked when they are made."""

import pytest

from tutti_server.engine.config import EngineConfig


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"model": ""}, "a name or a folder"),
        ({"device": "tpu"}, "one of auto, cpu, cuda"),
        ({"dtype": "int4"}, "one of auto, float32, bfloat16, float16, int8"),
        ({"audio_context": "short"}, "one of auto, interims, full"),
        ({"n_slots": 0}, "at least 1"),
        ({"max_encode_batch": 0}, "at least 1"),
        ({"max_waiting": 0}, "at least 1"),
        ({"n_threads": 0}, "at least 1"),
        ({"max_wait_ms": -1}, "at least 0"),
        ({"max_decode_stall_ms": -1}, "at least 0"),
        ({"min_decode_share": 1.0}, "at least 0 and below 1"),
        ({"device": "cpu", "dtype": "float16"}, "float32, bfloat16 or int8 on the CPU"),
        ({"device": "cuda", "dtype": "int8"}, "float32, bfloat16 or float16 on CUDA"),
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, object], expected: str) -> None:
    """The message names the field, what was expected and what came."""
    field, value = list(values.items())[-1]
    with pytest.raises(ValueError, match=f"{field}: expected {expected}, got {value!r}"):
        EngineConfig(**values)  # type: ignore[arg-type]
