"""Chooses the alignment heads of a checkpoint: those whose attention shows best when words begin.

The speech comes from espeak-ng, which reports when every word begins. A word begins where the path of dynamic time
warping through the mean attention of the heads reaches its first token (openai/whisper, whisper/timing.py,
`find_alignment`). Heads are chosen one by one on one half of the sentences, each time the head that lowers the error
most. The other half measures the result.
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from benchmarks.report import Table
from benchmarks.scoring import percentile
from engine.api import WINDOW_SAMPLES
from engine.checkpoint.checkpoint import read_checkpoint
from engine.decoding.word_timing import STATE_S, Floats, median_filtered, normalised, start_states
from engine.model.log_mel import log_mel, mel_filters
from training.evaluation.augment import coloured_noise, with_noise
from training.evaluation.clips import Clip, in_silence, windows_of
from training.evaluation.held_out import Voices, own_sentences
from training.evaluation.reference import silence_transformers
from training.speech.speak import has_synthesisers

SEED = 30
CAPPED_S = 0.5
"""Largest error in seconds that counts in the mean. Without it one lost sentence would dominate the mean."""
FOLLOWING_S = 0.2
"""Largest median error in seconds of a head that roughly follows the words."""
EQUAL_S = 0.001
"""Errors that differ by less than this, in seconds, are equal."""
VOICES = (("en-us", 175, 50), ("en", 150, 50), ("en-us+f3", 200, 60), ("en-us+m3", 135, 45), ("en-gb-x-rp+f2", 230, 55))
"""Voices of espeak-ng, each with rate and pitch."""
WINDOW_S = (10.0, 28.0)
"""Shortest and longest window of joined sentences, in seconds."""
NOISY_EVERY = 3
"""Every third clip gets noise."""
NOISE_DB = (5.0, 20.0)
"""Range of its signal-to-noise ratio, in decibels."""

Head = tuple[int, int]
"""Decoder layer and head."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """The attention of one clip whose word starts are known."""

    weights: Floats
    """`(heads, tokens + 1, states)`, normalised and filtered.

    Each row is the attention that predicts its token; the last row predicts the end.
    """
    first_tokens: NDArray[np.int64]
    """Index of the first token of each word."""
    word_starts_s: Floats


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of word starts in seconds. Smaller is better; fields are compared in their order."""

    median_s: float
    mean_s: float
    """Mean of errors capped at `CAPPED_S`."""
    late_s: float
    """Median of the signed errors; late is positive."""
    n_words: int

    @property
    def rank(self) -> tuple[int, int]:
        """The errors rounded to `EQUAL_S`, so that heads which add nothing are left out."""
        return round(self.median_s / EQUAL_S), round(self.mean_s / EQUAL_S)


def errors_s(examples: Sequence[Example], sets: Sequence[Sequence[int]]) -> list[Floats]:
    """The errors of all word starts for every set of heads, given by indices; late is positive."""
    found: list[list[Floats]] = [[] for _ in sets]
    for example in examples:
        starts = start_states(np.stack([example.weights[list(heads)].mean(0) for heads in sets]))
        for errors, row in zip(found, starts, strict=True):
            errors.append((row[example.first_tokens] * STATE_S - example.word_starts_s).astype(np.float32))
    return [np.concatenate(errors) for errors in found]


def score(errors: Floats) -> Score:
    """Summarise the errors of a set of heads."""
    absolute = np.abs(errors)
    median = percentile(absolute.tolist(), 50)
    assert median is not None
    return Score(median, float(np.minimum(absolute, CAPPED_S).mean()), float(np.median(errors)), len(errors))


def choose(examples: Sequence[Example], n_heads: int) -> list[int]:
    """Choose heads greedily, best first, until no further head improves the score of their mean attention.

    Heads that alone do not follow the words are left out, because they could help only by chance.
    """
    alone = [score(errors).median_s for errors in errors_s(examples, [[head] for head in range(n_heads)])]
    following = [head for head in range(n_heads) if alone[head] <= max(FOLLOWING_S, min(alone))]
    chosen: list[int] = []
    best: tuple[int, int] | None = None
    while len(chosen) < len(following):
        candidates = [head for head in following if head not in chosen]
        ranks = [score(errors).rank for errors in errors_s(examples, [[*chosen, head] for head in candidates])]
        rank = min(ranks)
        if best is not None and rank >= best:
            break
        best = rank
        chosen.append(candidates[ranks.index(rank)])
    return chosen


def make_clips(voices: Voices, texts: Sequence[str]) -> list[Clip]:
    """Speak every sentence with every voice: half of them alone and half in windows, every third clip with noise."""
    r = random.Random(SEED)
    clips: list[Clip] = []
    for (voice, _, _), spoken in zip(VOICES, voices.timed([texts] * len(VOICES), VOICES), strict=True):
        r.shuffle(spoken)
        alone = len(spoken) // 2
        clips += [in_silence(clip, r.uniform(0, 1), r.uniform(0, 1)) for clip in spoken[:alone]]
        clips += windows_of(spoken[alone:], r, voice, WINDOW_S)
    for index in range(0, len(clips), NOISY_EVERY):
        noise = coloured_noise(len(clips[index].samples), r.uniform(0, 1), np.random.default_rng((SEED, index)))
        clips[index] = replace(clips[index], samples=with_noise(clips[index].samples, noise, r.uniform(*NOISE_DB)))
    return clips


class AttentionReader:
    """Runs a checkpoint on clips with their true text and returns its cross-attention."""

    def __init__(self, model: Path) -> None:
        from transformers import WhisperForConditionalGeneration

        silence_transformers()
        self.checkpoint = read_checkpoint(str(model))
        self.network: Any = WhisperForConditionalGeneration.from_pretrained(
            model, dtype=torch.float32, attn_implementation="eager"
        )
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._filters = mel_filters(self.checkpoint.model.n_mels)
        sizes = self.checkpoint.model
        self.heads: list[Head] = [
            (layer, head) for layer in range(sizes.decoder_layers) for head in range(sizes.decoder_attention_heads)
        ]

    @torch.inference_mode()
    def read(self, clip: Clip) -> Example:
        """The attention of all heads for one clip."""
        ids = self.checkpoint.tokenizer
        encoding = self._tokenizer.encode(" " + clip.text, add_special_tokens=False)
        head = [ids.sot, self.checkpoint.generation.languages["en"], ids.transcribe, ids.no_timestamps]
        samples = torch.zeros(1, WINDOW_SAMPLES)
        samples[0, : len(clip.samples)] = torch.from_numpy(clip.samples)
        out = self.network(
            input_features=log_mel(samples, self._filters),
            decoder_input_ids=torch.tensor([[*head, *encoding.ids, ids.eot]]),
            output_attentions=True,
        )
        attention = torch.cat(out.cross_attentions, dim=1)[0].numpy()  # (heads, tokens, states)
        covered = attention[:, :, : max(1, int(clip.audio_s / STATE_S))]
        covered = covered / np.maximum(covered.sum(-1, keepdims=True), 1e-10)
        # The last token before the text predicts the first token of the text.
        weights = median_filtered(normalised(covered))[:, len(head) - 1 : -1]
        starts = np.array(clip.word_starts_s, np.float32)
        return Example(weights, first_tokens(clip.text, encoding.offsets), starts)


def first_tokens(text: str, offsets: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """The index of the first token of each word. The text was tokenised with a space before it."""
    ends = np.cumsum([len(word) + 1 for word in text.split()])
    starts = np.array([first for first, _ in offsets])
    return np.array([0, *(int((starts < end).sum()) for end in ends[:-1])], np.int64)


def table(
    reader: AttentionReader, halves: Sequence[Sequence[Example]], chosen: Sequence[int], upper: Sequence[int]
) -> Table:
    """The table: every head, the chosen set, and all heads of the upper half of the layers."""
    names = [f"layer {layer}, head {head}" for layer, head in reader.heads]
    sets = [[index] for index in range(len(names))] + [list(chosen), list(upper)]
    names += ["chosen: " + ", ".join(f"{layer}.{head}" for layer, head in (reader.heads[i] for i in chosen))]
    names += ["all heads of the upper half"]
    scores = [[score(errors) for errors in errors_s(half, sets)] for half in halves]
    rows = [
        (
            name,
            *(f"{1000 * each[index].median_s:.0f}" for each in scores),
            f"{1000 * scores[1][index].mean_s:.0f}",
            f"{1000 * scores[1][index].late_s:+.0f}",
        )
        for index, name in enumerate(names)
    ]
    title = f"Error of word starts in ms; {scores[0][0].n_words} words to choose by, {scores[1][0].n_words} others"
    return Table(title, ("heads", "median, chosen by", "median, others", "mean, others", "late by, others"), rows)


def write_heads(model: Path, heads: Sequence[Head]) -> None:
    """Write the heads into the checkpoint's generation_config.json, as transformers writes it."""
    file = model / "generation_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    settings["alignment_heads"] = [list(head) for head in sorted(heads)]
    file.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    """Choose the heads, print the table, and write them if requested."""
    parser = argparse.ArgumentParser(prog="python -m training.alignment", description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("engine/assets/tutti-demo"), help="checkpoint folder")
    parser.add_argument(
        "--root", type=Path, default=Path("build/training/synthesisers"), help="folder made by synthesisers.sh"
    )
    parser.add_argument("--write", action="store_true", help="write the heads into generation_config.json")
    args = parser.parse_args()
    if not has_synthesisers(args.root):
        sys.exit(f"--root: there is no espeak-ng in {args.root}; run training/synthesisers.sh")
    # A second thread gains little, and loses time when another process runs beside it.
    torch.set_num_threads(1)
    voices, reader, texts = Voices(args.root, SEED), AttentionReader(args.model), own_sentences()
    halves = [[reader.read(clip) for clip in make_clips(voices, texts[first::2])] for first in range(2)]
    chosen = choose(halves[0], len(reader.heads))
    n_layers = reader.checkpoint.model.decoder_layers
    upper = [index for index, (layer, _) in enumerate(reader.heads) if layer >= n_layers // 2]
    sys.stdout.write(table(reader, halves, chosen, upper).markdown())
    if args.write:
        write_heads(args.model, [reader.heads[index] for index in chosen])


if __name__ == "__main__":
    main()
