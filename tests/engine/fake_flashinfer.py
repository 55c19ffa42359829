"""A package that stands in for FlashInfer where there is none: its attention over windows, in plain PyTorch."""

import sys
from itertools import pairwise
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F


class Ragged:
    """See `BatchPrefillWithRaggedKVCacheWrapper`."""

    seen: ClassVar[list[list[int]]] = []
    """Lengths of the windows of every run."""

    def __init__(self, workspace: Tensor, layout: str, backend: str) -> None:
        assert layout == "NHD"

    def plan(self, queries: Tensor, keys: Tensor, *shape: int, causal: bool, **dtypes: Any) -> None:
        assert torch.equal(queries, keys) and not causal
        self._bounds = queries.tolist()

    def run(self, *queries_keys_values: Tensor) -> Tensor:
        lengths = [end - start for start, end in pairwise(self._bounds)]
        self.seen.append(lengths)
        split = [torch.split(each.transpose(0, 1)[None], lengths, dim=2) for each in queries_keys_values]
        return torch.cat(
            [F.scaled_dot_product_attention(*window)[0].transpose(0, 1) for window in zip(*split, strict=True)]
        )


def install(monkeypatch: pytest.MonkeyPatch, ragged: type[Ragged] | None, capability: tuple[int, int] = (9, 0)) -> None:
    """Put such a package, or none, in the place of FlashInfer, and another compute capability in the place of ours."""
    package: Any = ModuleType("flashinfer")
    package.BatchDecodeWithPagedKVCacheWrapper = object
    package.BatchPrefillWithRaggedKVCacheWrapper = ragged
    monkeypatch.setattr(Ragged, "seen", [])
    monkeypatch.setitem(sys.modules, "flashinfer", package if ragged else None)
    monkeypatch.delitem(sys.modules, "tutti_server.engine.cuda.flashinfer_attention", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
