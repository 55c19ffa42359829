"""What the model writes where nobody speaks, and whether its no-speech probability tells the two apart."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

from app.session.speech_filter import SpeechFilter
from benchmarks.scoring import percentile, words
from engine.api import SAMPLE_RATE, WINDOW_SAMPLES
from training.evaluation.agreement import NAMED
from training.evaluation.bench import SEED, Bench
from training.evaluation.card import Row
from training.evaluation.clips import SINGLE_SENTENCES, Clip, pieces
from training.evaluation.subjects import SERVED, Heard, text_of
from training.speech import sounds

MADE_EACH = 3
"""Made sounds of each kind, 30 s each."""
LEVEL_DB = (-40.0, 0.0)
PIECE_S = (5.0, 30.0)


async def nonspeech(bench: Bench) -> list[Row]:
    """Words of windows without speech, with no detector before the model, and of the service with its own."""
    part, rows = "Nobody speaks", []
    listed, made = bench.listed("nonspeech"), made_sounds()
    windows: list[Heard] = []
    for name, clips in (("shared audio", listed), ("made sounds", made)):
        heard = await bench.listener.hear(windows_of(clips))
        windows += heard
        if not clips:
            rows.append(Row(part, f"{name}: words", None, "words", 0))
            continue
        of = f"{len(heard)} windows, {sum(each.clip.audio_s for each in heard) / 60:.0f} min"
        n_texts = sum(bool(words(each.text)) for each in heard)
        rows += [
            Row(part, f"{name}: words the model writes", n_words(each.text for each in heard), "words", 0, of=of),
            Row(part, f"{name}: windows with words", n_texts, "windows", of=of),
            Row(part, f"{name}: behind the gate", n_words(each.gated_text for each in heard), "words", 0, of=of),
        ]
        texts = [(clip, text_of(await bench.listener.stream(clip.samples[None]))) for clip in clips]
        if clips is listed:
            bench.hypotheses |= {clip.name: text for clip, text in texts}
        heard_words = n_words(text for _, text in texts)
        rows.append(
            Row(part, f"{name}: through the service", heard_words, "words", 0, of=f"{len(clips)} recordings streamed")
        )
    silent = [each.clip for each in windows]
    named = await bench.listener.hear(silent, replace(SERVED, previous_text=", ".join(names for _, names in NAMED[:8])))
    of = f"{len(named)} windows behind a list of names"
    rows.append(Row(part, "all: words the model writes", n_words(each.text for each in named), "words", 0, of=of))
    spoken = await bench.listener.hear(
        bench.listed(*(f"synth-{kind}" for kind in SINGLE_SENTENCES if kind != "short")) + bench.fresh
    )
    return rows + calibration(spoken, windows)


def calibration(spoken: Sequence[Heard], silent: Sequence[Heard]) -> list[Row]:
    """The no-speech probability at the service's threshold."""
    part, threshold = "Probability of no speech", SpeechFilter().no_speech_threshold
    on_speech = [heard.done.no_speech_prob for heard in spoken]
    elsewhere = [heard.done.no_speech_prob for heard in silent]
    missed = sum(p > threshold for p in on_speech) / len(on_speech) if on_speech else None
    passed = sum(p <= threshold for p in elsewhere) / len(elsewhere) if elsewhere else None
    of_speech, of_silence = f"{len(on_speech)} windows with speech", f"{len(elsewhere)} without"
    return [
        Row(part, "speech: median", percentile(on_speech, 50), "probability", of=of_speech),
        Row(part, "speech: worst", max(on_speech, default=None), "probability", threshold, of=of_speech),
        Row(part, f"speech above {threshold}", missed, "%", of=of_speech),
        Row(part, "no speech: median", percentile(elsewhere, 50), "probability", of=of_silence),
        Row(part, "no speech: worst", min(elsewhere, default=None), "probability", threshold, True, of=of_silence),
        Row(part, f"no speech below {threshold}", passed, "%", of=of_silence),
    ]


def made_sounds() -> list[Clip]:
    """Sounds that training did not draw, at levels from loud to faint, and faint noise and silence."""
    r = random.Random(SEED)
    clips = []
    for index in range(MADE_EACH * len(sounds.KINDS)):
        kind = sounds.KINDS[index % len(sounds.KINDS)]
        made = sounds.make(kind, WINDOW_SAMPLES, sounds.Random(torch.device("cpu"), SEED + 2000 + index))
        samples = (made.numpy() * 10 ** (r.uniform(*LEVEL_DB) / 20)).astype(np.float32)
        clips.append(Clip(f"made/{kind}_{index}", kind, samples, ""))
    faint = np.random.default_rng(SEED).normal(0, 1e-4, WINDOW_SAMPLES).astype(np.float32)
    silence = np.zeros(WINDOW_SAMPLES, np.float32)
    return [*clips, Clip("made/faint", "faint", faint, ""), Clip("made/silence", "silence", silence, "")]


def windows_of(clips: Sequence[Clip]) -> list[Clip]:
    """Every clip in full windows, and again in pieces of 5 to 30 s."""
    r = random.Random(SEED)
    windows: list[Clip] = []
    for clip in clips:
        for start in range(0, len(clip.samples), WINDOW_SAMPLES):
            rest = clip.samples[start : start + WINDOW_SAMPLES]
            if len(rest) >= SAMPLE_RATE:
                windows.append(replace(clip, name=f"{clip.name}+{start}", samples=rest))
        windows += pieces(clip, r, *PIECE_S)
    return windows


def n_words(texts: Iterable[str]) -> int:
    return sum(len(words(text)) for text in texts)
