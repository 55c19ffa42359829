"""The graphed passes against the plain ones. Without a GPU, replaying a graph runs again what was captured."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine import graphs
from engine.errors import CheckpointError
from engine.fused import HalfProducts
from engine.fused_sampling import FusedSampler
from engine.graphs import Captured, GraphedPasses, load_flashinfer
from engine.kv_cache import KVCache
from engine.model import Whisper, build
from engine.packing import find_runs
from engine.passes import PlainPasses, n_rows_held
from engine.random_model import fill
from tests.engine.test_fused import DEVICE, SMALL, TOLERANCE

TINY = replace(SMALL, encoder_layers=1, decoder_layers=1, max_source_positions=24)
N_SLOTS = 5
SHORTER = (12,)


class Replayed:
    """Stands in for a CUDA graph: results come out where those of the capture lie."""

    def __init__(self, body: Callable[[], Any], out: Any) -> None:
        self._body = body
        self._out = out

    def replay(self) -> None:
        new = self._body()
        if self._out is not None:
            self._out.copy_(new)


@pytest.fixture(scope="module")
def model() -> Whisper:
    model = build(TINY, DEVICE, torch.float32)
    fill(model)
    return model


class NoSampler:
    """Sampling has tests of its own."""

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.stack([logits.argmax(dim=-1).float(), logits.amax(dim=-1)])


def make(model: Whisper, monkeypatch: pytest.MonkeyPatch, *, with_graphs: bool) -> tuple[PlainPasses, GraphedPasses]:
    """Both over caches of their own, with the same tokens at the same positions."""

    def capture(self: object, body: Callable[[], Any]) -> Captured[Any]:
        out = body()
        return Captured(Replayed(body, out), out)  # type: ignore[arg-type]

    if DEVICE.type == "cpu":
        monkeypatch.setattr(graphs.GraphPool, "capture", capture)
    monkeypatch.setattr(graphs, "ROWS", (4, 8))
    monkeypatch.setattr(graphs, "ENCODE_WINDOWS", (2, 1))
    monkeypatch.setattr(graphs, "SHORT_WINDOWS", (4,))
    monkeypatch.setattr(graphs, "FEW_STATES", 48)
    monkeypatch.setattr(graphs, "READ_ROWS", (4,))
    monkeypatch.setattr(graphs, "READ_TOKENS", (4,))
    rows = n_rows_held(N_SLOTS)
    tokens, positions = torch.arange(rows, device=DEVICE) + 20, torch.full((rows,), 4, device=DEVICE)
    plain_cache, cache = (KVCache(TINY, N_SLOTS + 1, DEVICE, torch.float32) for _ in range(2))
    sampler: FusedSampler = NoSampler()  # type: ignore[assignment]
    graphed = GraphedPasses(
        model,
        cache,
        tokens,
        positions,
        sampler,
        HalfProducts(),
        nobody=N_SLOTS,
        with_graphs=with_graphs,
        with_flashinfer=False,
    )
    with torch.inference_mode():
        graphed.capture(4, (TINY.n_mels, 2 * TINY.max_source_positions), SHORTER)
    return PlainPasses(model, plain_cache, tokens, positions), graphed


@torch.inference_mode()
@pytest.mark.parametrize(("lengths", "with_graphs"), [([12, 12, 12], True), ([12, 24, 24], True), ([24, 18], False)])
def test_a_window_goes_the_same_way(
    model: Whisper, monkeypatch: pytest.MonkeyPatch, lengths: list[int], with_graphs: bool
) -> None:
    """Encoded in parts or with places left over, its prompt read with fewer rows than the graph has, and stepped beside
    a hole."""
    plain, graphed = make(model, monkeypatch, with_graphs=with_graphs)
    slots = [3, 0, 1][: len(lengths)]
    features = torch.randn(len(lengths), TINY.n_mels, 48, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    prompts = [[5, 6, 7], [8, 9, 10, 11], [12]][: len(lengths)]
    for passes in (plain, graphed):
        passes.encode(features, slots, find_runs(lengths))
    expected, found = plain.read(prompts, slots), graphed.read(prompts, slots)
    assert found.shape == expected.shape
    for row, prompt in enumerate(prompts):
        torch.testing.assert_close(found[row, : len(prompt)], expected[row, : len(prompt)], **TOLERANCE)
    logits = graphed.step(dict.fromkeys(slots, 4))
    torch.testing.assert_close(logits[slots], plain.step(dict.fromkeys(slots, 4))[slots], **TOLERANCE)
    assert graphed.sample(logits)[0, slots].tolist() == logits[slots].argmax(dim=-1).tolist()


@torch.inference_mode()
def test_places_that_are_left_over_are_nobodys(model: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    """They held another window the time before; its slot has been taken over and keeps what it has heard since."""
    _, graphed = make(model, monkeypatch, with_graphs=True)
    features = torch.randn(4, TINY.n_mels, 24, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    graphed.encode(features, [0, 1, 2, 4], find_runs([12] * 4))
    graphed.encode(features[:1], [4], find_runs([12]))
    before = graphed._cache.cross_attention.clone()
    graphed.encode(features[:3].flip(0), [3, 0, 1], find_runs([12] * 3))
    is_same = (graphed._cache.cross_attention == before).transpose(0, 2).flatten(1).all(dim=1)
    assert is_same[:N_SLOTS].tolist() == [False, False, True, False, True]


def test_flashinfer_that_is_missing_is_named(model: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "flashinfer", None)
    monkeypatch.delitem(__import__("sys").modules, "engine.flashinfer_attention", raising=False)
    with pytest.raises(CheckpointError, match="kernels flashinfer: expected the package"):
        load_flashinfer(model, KVCache(TINY, 1, DEVICE, torch.float32))
