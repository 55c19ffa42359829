"""Raises the logit of the no-speech token, so that the usual threshold of 0.6 has a margin on both sides.

The logit of `<|nospeech|>` after `<|startoftranscript|>` rises by about `--shift`: the embedding of the token moves
along the mean decoder state at this position. Nothing else changes, because this token is never an input.
"""

import argparse
import json
import logging
import random
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from engine.checkpoint.checkpoint import EMBEDDED_FOLDER
from engine.model.log_mel import log_mel, mel_filters
from training.evaluation.held_out import VOICES, Voices, own_sentences
from training.model.network import Sizes, Whisper
from training.speech import sounds
from training.speech.bank_index import SAMPLE_RATE
from training.speech.production import CTC_ALPHABET
from training.tokenizer import Ids

logger = logging.getLogger(__name__)

SECONDS = 10
"""Length of a window, in seconds."""
SOUNDS_EACH = 12
"""Sounds of each kind."""
LEVEL_DB = (-40.0, 0.0)
"""Range of the levels of sounds and speech, in decibels."""
SEED = 71
NAMES = "Hallstrom, Brattleboro, Weimar, Drogheda, Nora Dowland"
"""A prompt of names that are not spoken."""


def windows(root: Path) -> tuple[Tensor, Tensor]:
    """Windows of made sounds and of made speech: `(windows, samples)` each."""
    r = random.Random(SEED)
    n_samples = SECONDS * SAMPLE_RATE
    silent = [torch.zeros(n_samples)]
    for index in range(SOUNDS_EACH * len(sounds.KINDS)):
        made = sounds.make(
            sounds.KINDS[index % len(sounds.KINDS)], n_samples, sounds.Random(torch.device("cpu"), SEED + index)
        )
        silent.append(made * 10 ** (r.uniform(*LEVEL_DB) / 20))
    clips = Voices(root, SEED).in_turn(own_sentences(), list(VOICES))
    speech = [np.pad(clip.samples[:n_samples], (0, max(0, n_samples - len(clip.samples)))) for clip in clips]
    levels = [10 ** (r.uniform(*LEVEL_DB) / 20) for _ in speech]
    spoken = [torch.from_numpy(samples).float() * gain for samples, gain in zip(speech, levels, strict=True)]
    return torch.stack(silent), torch.stack(spoken)


@torch.no_grad()
def states(network: Whisper, audio: Tensor, prompt: list[int], start: int) -> Tensor:
    """The decoder states at `<|startoftranscript|>` after a prompt: `(windows, d_model)`."""
    tokens = torch.tensor([*prompt, start])
    found = []
    for some in torch.split(audio, 16):
        encoded = network.model.encoder(log_mel(some, mel_filters(80)))
        found.append(network.model.decoder(tokens.expand(len(some), -1), encoded)[:, -1])
    return torch.cat(found)


def raised(row: Tensor, state: Tensor, shift: float) -> Tensor:
    """A token embedding whose logit is higher by `shift` at this state, and unchanged at orthogonal states."""
    return row + shift * state / state.square().sum()


def main() -> None:
    """Print the probabilities before and after the change, and write it if requested."""
    parser = argparse.ArgumentParser(prog="python -m training.calibration", description=__doc__)
    parser.add_argument("--model", type=Path, default=EMBEDDED_FOLDER, help="checkpoint folder")
    parser.add_argument(
        "--root", type=Path, default=Path("build/training/synthesisers"), help="folder made by synthesisers.sh"
    )
    parser.add_argument("--shift", type=float, default=1.5, help="how much the logit rises")
    parser.add_argument("--write", action="store_true", help="write the embedding into model.safetensors")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    file = args.model / "model.safetensors"
    weights = load_file(file)
    ids, tokenizer = Ids(args.model / "tokenizer.json"), Tokenizer.from_file(str(args.model / "tokenizer.json"))
    config = json.loads((args.model / "config.json").read_text())
    sizes = {name: config[name] for name in ("d_model", "encoder_layers", "decoder_layers")}
    network = Whisper(Sizes(vocab_size=ids.vocab_size, n_classes=len(CTC_ALPHABET) + 1, **sizes)).eval()
    network.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)
    silent, speech = windows(args.root)
    prompts = {"": [], " after names": [ids.previous, *tokenizer.encode(" " + NAMES, add_special_tokens=False).ids]}
    at = {
        (kind, name): states(network, audio, prompt, ids.start)
        for name, prompt in prompts.items()
        for kind, audio in (("silence", silent), ("speech", speech))
    }
    mean = at["silence", ""].mean(0)
    row = network.model.decoder.embed_tokens.weight.data[ids.no_speech]
    for when in ("before", "after"):
        for (kind, name), found in at.items():
            p = network.logits(found).softmax(-1)[:, ids.no_speech].detach().sort().values
            shown = f"min {p[0]:.4f}, median {p[len(p) // 2]:.4f}, max {p[-1]:.4f}"
            logger.info("%s, %s%s: %s, %d windows", when, kind, name, shown, len(p))
        if when == "before":
            row.copy_(raised(row, mean, args.shift))
    if args.write:
        weights["model.decoder.embed_tokens.weight"][ids.no_speech] = row.half()
        save_file(weights, file, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
