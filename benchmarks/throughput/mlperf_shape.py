"""Requests whose lengths are like those of MLPerf Inference v5.1's Whisper benchmark.

They have its shape only. Nothing here is a result of MLPerf or comparable with one: MLPerf measures trained weights on
LibriSpeech, checks word errors, and uses its own load generator, over ten minutes.

The benchmark joins the recordings of each chapter of LibriSpeech's two development sets, with pauses of 0.5 s, to clips
of at most 30 s, 1,633 in all. Here the recordings are made up: their lengths are drawn from a distribution with the
mean of those sets, and joined by the same rule. Source of the rule: mlcommons/inference,
speech2text/utils/repackage_librispeech.py.
"""

import math

import numpy as np

from benchmarks.throughput.work import MixedWork

NAME = "mlperf-shaped"
"""The name of the preset. Figures carry it, because they are no results of MLPerf."""
N_CLIPS = 1_633
"""Clips of the data set. Source: mlcommons/inference, loadgen/mlperf.conf, `performance_sample_count_override`."""
MEAN_TOKENS = 104.953 / 1.40174
"""Mean tokens of a clip, 74.9: tokens per second by clips per second, of a run of the reference implementation.

Source: v5.1 results, closed/GATEOverflow, whisper, offline, mlperf_log_summary.txt.
"""
MAX_TOKENS = 200
"""The most tokens of a clip. Source: mlcommons/inference, speech2text/reference_SUT.py, `max_tokens`."""
MIN_TOKENS = 4
"""The fewest tokens of a clip: two words, a full stop and the end token."""
N_ROUNDS = 4
"""Corrections of the scale until the mean of the rounded and bounded numbers of tokens is right."""
MAX_CLIP_S = 30.0
PAUSE_S = 0.5
"""Pause between the recordings of a clip, in seconds."""
RECORDINGS_IN_A_CHAPTER = 5_567 / 188
"""Mean number of recordings in a chapter of the two development sets. Both counts were not checked with the data."""
CHAPTER_SPREAD = 0.6
"""A chapter has up to this fraction more recordings than the mean, or fewer."""
MEAN_RECORDING_S = 10.7 * 3_600 / 5_567
"""Mean length of a recording of the two development sets, in seconds.

Source of the 10.7 hours: Panayotov et al., "LibriSpeech: an ASR corpus based on public domain audio books", 2015.
"""
RECORDING_SPREAD = 0.65
"""Standard deviation of the logarithm of a recording's length: one in ten is longer than 13 s, and one in ten shorter
than 2.4 s. An estimate."""
RATE_SPREAD = 0.15
"""Standard deviation of the logarithm of a speaker's tokens per second. An estimate."""


def mlperf_shaped(n_requests: int = N_CLIPS) -> MixedWork:
    """Make requests in a shuffled order that is always the same; fewer than all are spread evenly over the lengths."""
    if not 1 <= n_requests <= N_CLIPS:
        raise ValueError(f"requests: expected 1 to {N_CLIPS}, got {n_requests}")
    by_length = sorted(_clips(), key=lambda clip: (clip[1], clip[0]))
    chosen = [by_length[int((index + 0.5) * N_CLIPS / n_requests)] for index in range(n_requests)]
    order = np.random.default_rng(0).permutation(n_requests)
    return MixedWork(MAX_CLIP_S, max(n_tokens for _, n_tokens in chosen), [chosen[index] for index in order])


def _clips() -> list[tuple[float, int]]:
    """The seconds of audio and the tokens of all clips: each chapter has one speaker, who speaks at one rate."""
    random = np.random.default_rng(0)
    lengths_s: list[float] = []
    weights: list[float] = []
    while len(lengths_s) < N_CLIPS:
        n_recordings = round(RECORDINGS_IN_A_CHAPTER * random.uniform(1 - CHAPTER_SPREAD, 1 + CHAPTER_SPREAD))
        log_mean = math.log(MEAN_RECORDING_S) - RECORDING_SPREAD**2 / 2
        own_s = _joined(random.lognormal(log_mean, RECORDING_SPREAD, n_recordings).tolist())
        rate = random.lognormal(0, RATE_SPREAD)
        lengths_s += own_s
        weights += [rate * length_s for length_s in own_s]
    scale = MEAN_TOKENS * N_CLIPS / sum(weights[:N_CLIPS])
    for _ in range(N_ROUNDS):
        n_tokens = [min(max(round(scale * weight), MIN_TOKENS), MAX_TOKENS) for weight in weights[:N_CLIPS]]
        scale *= MEAN_TOKENS * N_CLIPS / sum(n_tokens)
    return list(zip(lengths_s[:N_CLIPS], n_tokens, strict=True))


def _joined(recordings_s: list[float]) -> list[float]:
    """The lengths of the clips that a chapter's recordings are joined to; those longer than a clip are left out."""
    clips_s: list[float] = []
    for length_s in recordings_s:
        if length_s > MAX_CLIP_S:
            continue
        if clips_s and clips_s[-1] + PAUSE_S + length_s <= MAX_CLIP_S:
            clips_s[-1] += PAUSE_S + length_s
        else:
            clips_s.append(length_s)
    return clips_s
