"""Where engines run: each on a GPU or a part of one, or with its part of the CPU threads."""

import os
from pathlib import Path

import pytest

from tutti_server.app.cli import engine_places
from tutti_server.app.cli.engine_places import EnginePlace, place_engines, visible_gpus
from tutti_server.app.errors import SettingsError
from tutti_server.app.service.settings import Settings

FAKE_TORCH = "class cuda:\n    device_count = staticmethod(lambda: {})\n"


@pytest.fixture
def n_cores(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    return 6


def with_gpus(monkeypatch: pytest.MonkeyPatch, *gpus: str) -> None:
    monkeypatch.setattr(engine_places, "visible_gpus", lambda environment: gpus)


def test_one_engine_is_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs are not counted for it, which would take seconds."""
    monkeypatch.setattr(engine_places, "visible_gpus", None)
    assert place_engines(Settings(threads=3)) == (EnginePlace(3),)


def test_each_engine_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of those that are visible, by their own names; `auto` takes all."""
    with_gpus(monkeypatch, "4", "6", "7")
    two, every = place_engines(Settings(engines="2")), place_engines(Settings(engines="auto"))
    assert [place.environment for place in every] == [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in ("4", "6", "7")]
    assert two == every[:2] and {place.threads for place in every} == {0}


def test_a_multiple_of_the_gpus_shares_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each GPU has equally many engines, which have equal parts of its memory."""
    with_gpus(monkeypatch, "4", "6")
    places = place_engines(Settings(engines="6"))
    assert [place.environment["CUDA_VISIBLE_DEVICES"] for place in places] == ["4", "6"] * 3
    assert {place.gpu_share for place in places} == {1 / 3}
    assert {place.gpu_share for place in place_engines(Settings(engines="2"))} == {1.0}


def test_engines_that_gpus_cannot_share_equally_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, "0", "1")
    expected = "engines: expected up to 2, one for each visible GPU, or a multiple of 2, which share them, got 3"
    with pytest.raises(SettingsError, match=expected):
        place_engines(Settings(engines="3"))


def test_without_gpus_engines_share_the_cores(monkeypatch: pytest.MonkeyPatch, n_cores: int) -> None:
    """Unless the operator says how many threads each has. `auto` is one engine."""
    with_gpus(monkeypatch)
    assert place_engines(Settings(engines="2")) == (EnginePlace(n_cores // 2),) * 2
    assert place_engines(Settings(engines="9")) == (EnginePlace(1),) * 9
    assert place_engines(Settings(engines="2", threads=5)) == (EnginePlace(5),) * 2
    assert place_engines(Settings(engines="auto")) == (EnginePlace(0),)


def test_on_the_cpu_gpus_do_not_matter(monkeypatch: pytest.MonkeyPatch, n_cores: int) -> None:
    with_gpus(monkeypatch, "0", "1")
    assert place_engines(Settings(engines="3", device="cpu")) == (EnginePlace(n_cores // 3),) * 3


@pytest.mark.parametrize(
    ("n_torch_sees", "outer", "expected"),
    [
        (2, None, ("0", "1")),
        (2, "3, 1", ("3", "1")),
        (1, "GPU-5ab1,GPU-77c0", ("GPU-5ab1",)),
        (1, "MIG-5ab1,MIG-77c0", ("MIG-5ab1", "MIG-77c0")),
        (0, "", ()),
        (0, "0", ()),
    ],
)
def test_an_outer_list_of_gpus_is_kept(
    tmp_path: Path, n_torch_sees: int, outer: str | None, expected: tuple[str, ...]
) -> None:
    """As far as torch finds them. It sees one part of a GPU only, however many there are."""
    (tmp_path / "torch.py").write_text(FAKE_TORCH.format(n_torch_sees))
    environment = {"PYTHONPATH": str(tmp_path)} | ({} if outer is None else {"CUDA_VISIBLE_DEVICES": outer})
    assert visible_gpus(environment) == expected


def test_a_torch_that_cannot_be_loaded_is_reported(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart is missing')")
    with pytest.raises(SettingsError, match="libcudart is missing"):
        visible_gpus({"PYTHONPATH": str(tmp_path)})
