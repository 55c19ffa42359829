"""Chooses a checkpoint's alignment heads by measurement: those whose attention tells best when words begin.

Speech is espeak-ng's, which says when every word begins. A word begins where the path of dynamic time warping through
the heads' mean attention reaches its first token (openai/whisper, whisper/timing.py, `find_alignment`). Heads are taken
one after another, each time the one that lowers the error most, on one half of the sentences; the other half shows what
the choice is worth.
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
from engine.decoding.word_timing import STATE_S, Floats, median_filtered, normalised, start_frames
from engine.model.log_mel import log_mel, mel_filters
from training.evaluation.augment import coloured_noise, with_noise
from training.evaluation.clips import Clip, in_silence, windows_of
from training.evaluation.held_out import Voices, own_sentences
from training.evaluation.reference import keep_quiet
from training.speech.speak import has_synthesisers

SEED = 30
CAPPED_S = 0.5
"""An error counts no more than this in the mean, which one lost sentence would rule otherwise."""
FOLLOWING_S = 0.2
"""Median error of a head that follows the words, if roughly."""
EQUAL_S = 0.001
VOICES = (("en-us", 175, 50), ("en", 150, 50), ("en-us+f3", 200, 60), ("en-us+m3", 135, 45), ("en-gb-x-rp+f2", 230, 55))
"""espeak-ng's voice, rate and pitch."""
WINDOW_S = (10.0, 28.0)
NOISY_EVERY = 3
NOISE_DB = (5.0, 20.0)

Head = tuple[int, int]
"""Decoder layer and head."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """The attention of one clip whose word starts are known."""

    weights: Floats
    """`(heads, tokens + 1, states)`, normalised and filtered: each row while its token is predicted, the last one while
    the end is."""
    first_tokens: NDArray[np.int64]
    """Of each word."""
    word_starts_s: Floats


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of word starts in seconds. Smaller is better, in the order of the fields."""

    median_s: float
    mean_s: float
    """Of capped errors."""
    late_s: float
    """Median with its sign; late is positive."""
    n_words: int

    @property
    def rank(self) -> tuple[int, int]:
        """What differs by less than chance is equal, so that heads which add nothing are left out."""
        return round(self.median_s / EQUAL_S), round(self.mean_s / EQUAL_S)


def errors_s(examples: Sequence[Example], sets: Sequence[Sequence[int]]) -> list[Floats]:
    """Errors of all word starts for every set of heads (indices); late is positive."""
    found: list[list[Floats]] = [[] for _ in sets]
    for example in examples:
        starts = start_frames(np.stack([example.weights[list(heads)].mean(0) for heads in sets]))
        for errors, row in zip(found, starts, strict=True):
            errors.append((row[example.first_tokens] * STATE_S - example.word_starts_s).astype(np.float32))
    return [np.concatenate(errors) for errors in found]


def score(errors: Floats) -> Score:
    absolute = np.abs(errors)
    median = percentile(absolute.tolist(), 50)
    assert median is not None
    return Score(median, float(np.minimum(absolute, CAPPED_S).mean()), float(np.median(errors)), len(errors))


def choose(examples: Sequence[Example], n_heads: int) -> list[int]:
    """The heads, best first, whose mean attention gives the best score; greedily, until no further one lowers it.

    Heads that do not follow the words on their own are left out: where one of them helps, it is by chance.
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
    """Every sentence by every voice, half of them alone and half in windows, every third clip with noise."""
    r = random.Random(SEED)
    clips: list[Clip] = []
    for (voice, _, _), said in zip(VOICES, voices.timed([texts] * len(VOICES), VOICES), strict=True):
        r.shuffle(said)
        alone = len(said) // 2
        clips += [in_silence(clip, r.uniform(0, 1), r.uniform(0, 1)) for clip in said[:alone]]
        clips += windows_of(said[alone:], r, voice, WINDOW_S)
    for index in range(0, len(clips), NOISY_EVERY):
        noise = coloured_noise(len(clips[index].samples), r.uniform(0, 1), np.random.default_rng((SEED, index)))
        clips[index] = replace(clips[index], samples=with_noise(clips[index].samples, noise, r.uniform(*NOISE_DB)))
    return clips


class Reader:
    """Runs a checkpoint over clips with their true text and reads its cross-attention."""

    def __init__(self, model: Path) -> None:
        from transformers import WhisperForConditionalGeneration

        keep_quiet()
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
        heard = attention[:, :, : max(1, int(clip.audio_s / STATE_S))]
        heard = heard / np.maximum(heard.sum(-1, keepdims=True), 1e-10)
        # Of the tokens before the text, the last one predicts its first token.
        weights = median_filtered(normalised(heard))[:, len(head) - 1 : -1]
        starts = np.array(clip.word_starts_s, np.float32)
        return Example(weights, first_tokens(clip.text, encoding.offsets), starts)


def first_tokens(text: str, offsets: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Of each word of the text, which was tokenised with a space before it."""
    ends = np.cumsum([len(word) + 1 for word in text.split()])
    starts = np.array([first for first, _ in offsets])
    return np.array([0, *(int((starts < end).sum()) for end in ends[:-1])], np.int64)


def table(reader: Reader, halves: Sequence[Sequence[Example]], chosen: Sequence[int], upper: Sequence[int]) -> Table:
    """Every head, the chosen set, and all heads of the upper half of the layers. `late by`: the constant offset."""
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
    """Into the checkpoint's generation_config.json, as transformers writes it."""
    file = model / "generation_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    settings["alignment_heads"] = [list(head) for head in sorted(heads)]
    file.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training.alignment", description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("engine/assets/tutti-demo"), help="checkpoint folder")
    parser.add_argument("--root", type=Path, default=Path("build/training/synthesisers"), help="of synthesisers.sh")
    parser.add_argument("--write", action="store_true", help="write the heads into generation_config.json")
    args = parser.parse_args()
    if not has_synthesisers(args.root):
        sys.exit(f"--root: no espeak-ng in {args.root}; make it with training/synthesisers.sh")
    # A second thread gains little here, and waits in vain beside another process.
    torch.set_num_threads(1)
    voices, reader, texts = Voices(args.root, SEED), Reader(args.model), own_sentences()
    halves = [[reader.read(clip) for clip in make_clips(voices, texts[first::2])] for first in range(2)]
    chosen = choose(halves[0], len(reader.heads))
    n_layers = reader.checkpoint.model.decoder_layers
    upper = [index for index, (layer, _) in enumerate(reader.heads) if layer >= n_layers // 2]
    sys.stdout.write(table(reader, halves, chosen, upper).markdown())
    if args.write:
        write_heads(args.model, [reader.heads[index] for index in chosen])


if __name__ == "__main__":
    main()
