"""Makes a checkpoint folder in the layout of transformers from the weights that `training.train` wrote."""

import argparse
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from training.model.network import HEAD_DIM, N_STATES
from training.tokenizer import N_POSITIONS

logger = logging.getLogger(__name__)

AUDIO_CONTEXT = {"min_frames": 300, "margin_frames": 50}
"""The audio context of the checkpoint, in mel frames of 10 ms: its shortest window, and the margin after the audio."""


def generation_settings(tokenizer: Any, decoder_layers: int, heads_per_layer: int) -> dict[str, Any]:
    """The content of generation_config.json."""
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    ids = tokenizer.convert_tokens_to_ids
    end = ids("<|endoftext|>")
    layers = range(decoder_layers // 2, decoder_layers)
    return {
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": ids("<|startoftranscript|>"),
        # The end token is not suppressed, unlike in OpenAI's models: without speech, this model ends at once.
        "begin_suppress_tokens": [tokenizer.encode(" ", add_special_tokens=False)[0]],
        "suppress_tokens": [],
        "lang_to_id": {f"<|{language}|>": ids(f"<|{language}|>") for language in LANGUAGES},
        "task_to_id": {"transcribe": ids("<|transcribe|>"), "translate": ids("<|translate|>")},
        "no_timestamps_token_id": ids("<|notimestamps|>"),
        "prev_sot_token_id": ids("<|startofprev|>"),
        "is_multilingual": True,
        "max_initial_timestamp_index": 50,
        "max_length": N_POSITIONS,
        "return_timestamps": False,
        "tutti_audio_context": AUDIO_CONTEXT,
        # Measured by benchmarks.endpointing: its punctuation, learnt from sentences broken off, tells ends from pauses.
        "tutti_adaptive_endpointing": True,
        # A placeholder until training.alignment has chosen the heads.
        "alignment_heads": [[layer, head] for layer in layers for head in range(heads_per_layer)],
    }


def export(weights: Path, tokenizer_folder: Path, out: Path) -> None:
    """Write the checkpoint to `out`, over what is there.

    `weights` is a folder with `train.json` and `weights-*.safetensors`.
    """
    from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration, WhisperTokenizer

    sizes = json.loads((weights / "train.json").read_text())["sizes"]
    state: dict[str, Tensor] = {}
    for file in sorted(weights.glob("weights-*.safetensors")):
        state |= load_file(file)
    tokenizer = WhisperTokenizer.from_pretrained(tokenizer_folder)
    heads = max(1, sizes["d_model"] // HEAD_DIM)
    settings = generation_settings(tokenizer, sizes["decoder_layers"], heads)
    shared = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "begin_suppress_tokens")
    config = WhisperConfig(
        num_mel_bins=80,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * sizes["d_model"],
        decoder_ffn_dim=4 * sizes["d_model"],
        max_source_positions=N_STATES,
        max_target_positions=N_POSITIONS,
        suppress_tokens=None,
        tie_word_embeddings=True,
        **sizes,
        **{name: settings[name] for name in shared},
    )
    model: Any = WhisperForConditionalGeneration(config)
    state["proj_out.weight"] = state["model.decoder.embed_tokens.weight"]
    model.load_state_dict({name: tensor.float() for name, tensor in state.items()}, strict=True)
    model.generation_config = GenerationConfig(**settings)  # type: ignore[no-untyped-call]  # untyped in transformers
    out.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(out)
    special = sorted(tokenizer.get_added_vocab().items(), key=lambda item: item[1])
    names = [name for name, _ in special if not name[2:-2].replace(".", "").isdigit()]
    tokenizer.add_special_tokens({"extra_special_tokens": names[1:]})
    tokenizer.save_pretrained(out)
    for name in ("vocab.json", "merges.txt", "preprocessor_config.json"):
        shutil.copy(tokenizer_folder / name, out)
    for file in out.iterdir():
        file.chmod(0o644)


def check(folder: Path) -> None:
    """Check that transformers, the network of this package and the engine agree on features and logits."""
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    from engine.checkpoint.checkpoint import read_checkpoint
    from engine.model.log_mel import log_mel, mel_filters
    from training.model.network import Sizes, Whisper

    checkpoint = read_checkpoint(str(folder))
    model: Any = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    c = model.config
    network = Whisper(
        Sizes(
            vocab_size=c.vocab_size,
            n_classes=29,
            d_model=c.d_model,
            encoder_layers=c.encoder_layers,
            decoder_layers=c.decoder_layers,
        )
    ).eval()
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "proj_out.weight"}
    missing, extra = network.load_state_dict(state, strict=False)
    assert set(missing) == {"ctc.weight", "ctc.bias"} and not extra, (missing, extra)
    samples = torch.randn(1, 30 * 16_000, generator=torch.Generator().manual_seed(0)) * torch.linspace(0, 0.1, 480_000)
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    theirs = extractor(samples[0].numpy(), sampling_rate=16_000, return_tensors="pt").input_features
    ours = log_mel(samples, mel_filters(80))
    tokens = torch.randint(0, c.vocab_size, (1, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model(input_features=theirs, decoder_input_ids=tokens).logits
        found = network.logits(network.model.decoder(tokens, network.model.encoder(theirs)))
    features_off, logits_off = (theirs - ours).abs().max().item(), (wanted - found).abs().max().item()
    logger.info("%s: features differ by %.1e, logits by %.1e", checkpoint.name, features_off, logits_off)
    assert features_off < 1e-4 and logits_off < 1e-3


def main() -> None:
    """Export the weights and check the result."""
    parser = argparse.ArgumentParser(prog="python -m training.export", description=__doc__)
    parser.add_argument("--weights", type=Path, required=True, help="folder that training.train wrote to")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder that training.tokenizer wrote to")
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    export(args.weights, args.tokenizer, args.out)
    check(args.out)


if __name__ == "__main__":
    main()
