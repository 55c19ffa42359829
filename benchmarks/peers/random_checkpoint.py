"""Writes a random checkpoint of tutti in the layout of transformers, and converts it for CTranslate2."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.peers.ctranslate2 import convert_for_ctranslate2
from tutti_server.engine.checkpoint.checkpoint import ModelConfig
from tutti_server.engine.model.random_weights import SIZES, fill, random_checkpoint, shape_output, vocabulary
from tutti_server.engine.model.weights import published_parameters
from tutti_server.engine.model.whisper import build

END = "<|endoftext|>"
"""The token that ends a text."""


def published_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our weights by their published names: queries, keys and values apart, and keys without a bias."""
    return {
        f"model.{name}": weight.contiguous()
        for name, weight in published_parameters(weights)
        if not name.endswith("k_proj.bias")
    }


def write_checkpoint(name: str, folder: Path) -> str:
    """Write the checkpoint `random:SIZE` below `folder`, converted, and return the path of the converted one."""
    from transformers import PreTrainedTokenizerFast

    checkpoint = random_checkpoint(name)
    source = folder / "published"
    source.mkdir()
    with torch.inference_mode():
        model = build(checkpoint.model, torch.device("cpu"), torch.float32)
        fill(model)
        shape_output(model, checkpoint.tokenizer)
        save_file(published_weights(model.state_dict()), source / "model.safetensors", metadata={"format": "pt"})
    _config(SIZES[name.partition(":")[2]]).save_pretrained(source)
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=vocabulary(), unk_token=END, eos_token=END)
    tokenizer.save_pretrained(source)
    return convert_for_ctranslate2(str(source), folder / "converted")


def _config(sizes: ModelConfig) -> Any:
    from transformers import WhisperConfig

    return WhisperConfig(
        architectures=["WhisperForConditionalGeneration"],
        vocab_size=sizes.vocab_size,
        num_mel_bins=sizes.n_mels,
        d_model=sizes.d_model,
        encoder_layers=sizes.encoder_layers,
        encoder_attention_heads=sizes.encoder_attention_heads,
        encoder_ffn_dim=sizes.encoder_ffn_dim,
        decoder_layers=sizes.decoder_layers,
        decoder_attention_heads=sizes.decoder_attention_heads,
        decoder_ffn_dim=sizes.decoder_ffn_dim,
        max_source_positions=sizes.max_source_positions,
        max_target_positions=sizes.max_target_positions,
    )
