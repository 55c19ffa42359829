"""How much memory a model needs, and how much is left."""

from pathlib import Path

import pytest

from tests.small_model import SMALL_MODEL
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.model_memory import CPU_WORK_BYTES, DeviceMemory, _group_bytes, _n_weights, needed_bytes
from tutti_server.engine.runner import load_runner


def test_weights_are_counted_without_reading_them() -> None:
    runner = load_runner(EngineConfig(model=SMALL_MODEL, device="cpu"))
    assert sum(_n_weights(runner.checkpoint.model)) == pytest.approx(runner.n_parameters, rel=0.02)


def test_a_larger_model_and_wider_weights_need_more() -> None:
    def needed(model: str, **values: str) -> int:
        return needed_bytes(EngineConfig(model=model, device="cpu", **values))  # type: ignore[arg-type]  # texts only

    small = needed(SMALL_MODEL)
    assert CPU_WORK_BYTES < small < needed("tutti-base") < needed("random:medium")
    assert needed(SMALL_MODEL, dtype="bfloat16") < small


def test_what_is_left_is_less_than_the_machine_has() -> None:
    memory = DeviceMemory(EngineConfig(device="cpu"))
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert 0 < memory.bytes_left() < total and 0 < memory.bytes_taken() < total


@pytest.mark.parametrize(
    ("line", "folder", "files"),
    [
        ("0::/tutti.slice/unit", "tutti.slice", ("memory.max", "memory.current", "inactive_file")),
        # A container sees its own group as the root.
        ("0::/elsewhere", ".", ("memory.max", "memory.current", "inactive_file")),
        ("4:memory:/box", "memory/box", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")),
    ],
)
def test_the_limit_of_a_control_group_counts(
    tmp_path: Path, line: str, folder: str, files: tuple[str, str, str]
) -> None:
    """What it holds of files can be dropped, and counts as left."""
    limit, used, cache = files
    group = tmp_path / folder
    group.mkdir(parents=True, exist_ok=True)
    (group / limit).write_text("1000\n")
    (group / used).write_text("700\n")
    (group / "memory.stat").write_text(f"anon 400\n{cache} 200\n")
    assert list(_group_bytes(f"1:cpu:/\n{line}\n", tmp_path)) == [500]


def test_a_group_without_a_limit_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    assert not list(_group_bytes("0::/\n", tmp_path))
