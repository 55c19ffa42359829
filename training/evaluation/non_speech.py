"""Measures what the model writes where there is no speech, and how well its no-speech probability detects that."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

from app.session.hallucination_filter import HallucinationFilter
from benchmarks.scoring import percentile, words
from engine.api import SAMPLE_RATE, WINDOW_SAMPLES
from training.evaluation.agreement import NAMED
from training.evaluation.bench import SEED, Bench
from training.evaluation.card import Row, make_row
from training.evaluation.clips import SINGLE_SENTENCES, Clip, pieces
from training.evaluation.subjects import SERVICE_OPTIONS, DecodedClip, text_of
from training.speech import sounds

MADE_EACH = 3
"""Number of made sounds of each kind, 30 s each."""
LEVEL_DB = (-40.0, 0.0)
"""Range of the levels of made sounds, in decibels."""
PIECE_S = (5.0, 30.0)
"""Shortest and longest piece of a recording, in seconds."""


async def nonspeech(bench: Bench) -> list[Row]:
    """Measure the words for windows without speech, by the model alone and by the service with its speech detector."""
    part = "Nobody speaks"
    rows: list[Row] = []
    listed, made = bench.listed("nonspeech"), made_sounds()
    windows: list[DecodedClip] = []
    for name, clips in (("shared audio", listed), ("made sounds", made)):
        decoded = await bench.subject.transcribe(windows_of(clips))
        windows += decoded
        if not clips:
            rows.append(make_row(part, f"{name}: words", None, "words", 0))
            continue
        of = f"{len(decoded)} windows, {sum(each.clip.audio_s for each in decoded) / 60:.0f} min"
        n_texts = sum(bool(words(each.text)) for each in decoded)
        n_filtered = n_words(each.filtered_text for each in decoded)
        rows += [
            make_row(
                part, f"{name}: words the model writes", n_words(each.text for each in decoded), "words", 0, of=of
            ),
            make_row(part, f"{name}: windows with words", n_texts, "windows", of=of),
            make_row(part, f"{name}: after the hallucination filter", n_filtered, "words", 0, of=of),
        ]
        texts = [(clip, text_of(await bench.subject.stream(clip.samples[None]))) for clip in clips]
        if clips is listed:
            bench.hypotheses |= {clip.name: text for clip, text in texts}
        of, n_streamed_words = f"{len(clips)} recordings streamed", n_words(text for _, text in texts)
        rows.append(make_row(part, f"{name}: through the service", n_streamed_words, "words", 0, of=of))
    silent = [each.clip for each in windows]
    prompt = ", ".join(names for _, names in NAMED[:8])
    named = await bench.subject.transcribe(silent, replace(SERVICE_OPTIONS, previous_text=prompt))
    of = f"{len(named)} windows after a list of names"
    rows.append(make_row(part, "all: words the model writes", n_words(each.text for each in named), "words", 0, of=of))
    spoken = await bench.subject.transcribe(
        bench.listed(*(f"synth-{kind}" for kind in SINGLE_SENTENCES if kind != "short")) + bench.held_out
    )
    return rows + calibration(spoken, windows)


def calibration(spoken: Sequence[DecodedClip], silent: Sequence[DecodedClip]) -> list[Row]:
    """Measure the no-speech probability at the threshold of the service."""
    part, threshold = "Probability of no speech", HallucinationFilter().no_speech_threshold
    on_speech = [decoded.done.no_speech_prob for decoded in spoken]
    elsewhere = [decoded.done.no_speech_prob for decoded in silent]
    missed = sum(p > threshold for p in on_speech) / len(on_speech) if on_speech else None
    passed = sum(p <= threshold for p in elsewhere) / len(elsewhere) if elsewhere else None
    of_speech, of_silence = f"{len(on_speech)} windows with speech", f"{len(elsewhere)} without"
    return [
        make_row(part, "speech: median", percentile(on_speech, 50), "probability", of=of_speech),
        make_row(part, "speech: worst", max(on_speech, default=None), "probability", threshold, of=of_speech),
        make_row(part, f"speech above {threshold}", missed, "%", of=of_speech),
        make_row(part, "no speech: median", percentile(elsewhere, 50), "probability", of=of_silence),
        make_row(
            part,
            "no speech: worst",
            min(elsewhere, default=None),
            "probability",
            threshold,
            at_least=True,
            of=of_silence,
        ),
        make_row(part, f"no speech below {threshold}", passed, "%", of=of_silence),
    ]


def made_sounds() -> list[Clip]:
    """Sounds that training did not draw, at levels from loud to faint, and faint noise and silence."""
    r = random.Random(SEED)
    clips = []
    for index in range(MADE_EACH * len(sounds.KINDS)):
        kind = sounds.KINDS[index % len(sounds.KINDS)]
        made = sounds.make(kind, WINDOW_SAMPLES, sounds.Random(torch.device("cpu"), SEED + 2000 + index))
        samples = (made.numpy() * 10 ** (r.uniform(*LEVEL_DB) / 20)).astype(np.float32)
        clips.append(Clip(name=f"made/{kind}_{index}", group=kind, samples=samples, text=""))
    faint = np.random.default_rng(SEED).normal(0, 1e-4, WINDOW_SAMPLES).astype(np.float32)
    silence = np.zeros(WINDOW_SAMPLES, np.float32)
    return [
        *clips,
        Clip(name="made/faint", group="faint", samples=faint, text=""),
        Clip(name="made/silence", group="silence", samples=silence, text=""),
    ]


def windows_of(clips: Sequence[Clip]) -> list[Clip]:
    """Cut every clip into full windows, and again into pieces of 5 to 30 s."""
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
    """The number of words of all texts."""
    return sum(len(words(text)) for text in texts)
