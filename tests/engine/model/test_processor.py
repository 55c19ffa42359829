"""What PyTorch says of the processor."""

import pytest
import torch

from tutti_server.engine.model.processor import has_bfloat16, has_int8, has_tiles


@pytest.mark.parametrize("has", [True, False])
def test_pytorch_is_asked(has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions are private: this fails where a version of PyTorch lacks them."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: not has)
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: has)
    assert has_bfloat16() is has
    assert has_int8() is has
    assert has_tiles() is not has
