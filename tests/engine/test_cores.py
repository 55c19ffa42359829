"""How many cores a process in a container may use."""

import math
import os
from pathlib import Path

import pytest
import torch

from tutti_server.engine import runner
from tutti_server.engine.cores import cpu_quota, n_usable_cores


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Names the cgroup of the process: the one at the root, as in most containers."""
    file = tmp_path / "own"
    file.write_text("0::/\n")
    return file


def limited(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.max").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "n_cores"),
    [
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("10000 100000\n", 1),
        ("900000 100000\n", 8),
        ("max 100000\n", 8),
    ],
)
def test_a_quota_limits_the_cores(
    text: str, n_cores: int, tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of a core counts as one: it is there for a part of the time."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert n_usable_cores(limited(tmp_path / "cgroups", text), own) == n_cores


def test_the_least_quota_around_a_process_holds(tmp_path: Path, own: Path) -> None:
    root = limited(tmp_path / "cgroups", "max 100000\n")
    limited(root / "pods", "300000 100000\n")
    limited(root / "pods" / "tutti", "400000 100000\n")
    # Around the mounted ones there is none.
    limited(tmp_path, "100000 100000\n")
    own.write_text("1:cpu:/elsewhere\n0::/pods/tutti\n")
    assert cpu_quota(root, own) == 3
    # A name of the host, whose cgroups the container does not see.
    own.write_text("0::/host/pods/tutti\n")
    assert cpu_quota(limited(root, "250000 100000\n"), own) == 2.5


@pytest.mark.parametrize("text", ["", "2", "two 100000", "1 0"])
def test_what_cannot_be_read_is_no_quota(text: str, tmp_path: Path, own: Path) -> None:
    assert cpu_quota(limited(tmp_path / "cgroups", text), own) == math.inf
    assert cpu_quota(tmp_path / "nothing", own) == cpu_quota(tmp_path / "cgroups", tmp_path / "nothing") == math.inf


def test_the_engine_has_no_more_threads_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch counts all cores of the machine."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    monkeypatch.setattr(runner, "n_usable_cores", lambda: 2)
    assert runner._usual_threads.__wrapped__() == 2
