"""Audio with the true times of its speech, in the kinds that a speech detector meets.

The recordings are those of a folder with a manifest. Times come from the manifest; where it has none, or only the
limits of whole clips, they come from the loudness of the clean recording. Noise and telephone lines are added to clean
recordings, so that the times stay true.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import soxr

from app.media.file_decoder import decode_pieces
from app.media.pcm import Samples, decode_samples
from app.session.coverage import Span
from engine.api import SAMPLE_RATE

FLOOR = 10 ** (-70 / 20)
"""The amplitude of the noise in the pauses between clips, as a fraction of full scale (-70 dB)."""
PAUSE_S = (1.0, 4.0)
"""The least and the most silence between clips, in seconds."""
LEVEL_SAMPLES = SAMPLE_RATE // 100
"""Samples over which loudness is measured (10 ms)."""
SPEECH_DB = 25.0
"""Clean audio is speech where it is not quieter by more than this than its loud parts, in dB: breaths are quieter."""
MIN_SOUND_S = 0.05
"""Shorter sounds in a clean recording are clicks, in seconds."""
MERGED_GAP_S = 0.2
"""Shorter pauses in speech are part of it, in seconds, as in the manifest's times."""
EVERY_NTH = 3
"""Of the clips of human speech, one in this many is used."""
CLEAN_HUMAN = ("human-read", "human-short", "human-spontaneous")
"""The kinds of the manifest whose clips are joined to one recording of human speech."""
NOISES = {
    "dishes": "nonspeech/noise_dishes.flac",
    "music": "nonspeech/music_orchestral.flac",
    "room noise": "nonspeech/room_noise.flac",
}
"""Sounds that are mixed with clean human speech."""
SNRS_DB = (10, 0)
"""The ratios of speech to noise, in dB."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelledAudio:
    """Mono audio at 16 kHz with the true times of its speech."""

    kind: str
    name: str
    samples: Samples
    speech: tuple[Span, ...]
    """Start and end of each stretch of speech, in samples, in order; gaps are longer than `MERGED_GAP_S`."""

    @property
    def audio_s(self) -> float:
        """Length in seconds."""
        return len(self.samples) / SAMPLE_RATE


def load(folder: Path) -> Iterator[LabelledAudio]:
    """All audio of the table, kind by kind.

    Raises:
        ClickException: there is no manifest in the folder.
    """
    manifest = folder / "manifest.jsonl"
    if not manifest.is_file():
        raise click.ClickException(f"--audio: expected a folder with a manifest.jsonl, found none in {folder}")
    lines = [json.loads(line) for line in manifest.read_text().splitlines() if line.strip()]
    human = joined(
        "human, clean",
        [_read(folder, line)[0] for line in lines if line["kind"] in CLEAN_HUMAN][::EVERY_NTH],
        np.random.default_rng(0),
    )
    yield human
    yield over_telephone("human, telephone", human)
    for noise, file in NOISES.items():
        sound = _read(folder, {"file": file})[0]
        for snr_db in SNRS_DB:
            yield with_noise(f"human, {noise}, {snr_db} dB", human, sound, snr_db)
    yield from _with_times("call, human", folder, lines, "call-stereo-human")
    yield from _with_times("meeting, far microphone", folder, lines, "meeting-vad")
    dialogues = [line for line in lines if "_music" not in line["file"]]
    yield from _with_times("synthetic", folder, dialogues, "synth-dialogue")
    yield from _with_times(
        "synthetic, music", folder, [each for each in lines if each not in dialogues], "synth-dialogue"
    )
    yield from _with_times("call, synthetic", folder, lines, "synth-call-stereo")
    for line in lines:
        if line["kind"] == "nonspeech":
            yield LabelledAudio("no speech", line["file"], _read(folder, line)[0], ())


def joined(kind: str, clips: Sequence[Samples], random: np.random.Generator) -> LabelledAudio:
    """Clean clips in a row, with silence of random length around each of them."""
    parts, speech, at = [], [], 0
    for clip in clips:
        pause = np.zeros(round(random.uniform(*PAUSE_S) * SAMPLE_RATE), dtype=np.float32)
        at += len(pause)
        speech += [(start + at, end + at) for start, end in loud_spans(clip)]
        parts += [pause, clip]
        at += len(clip)
    samples = np.concatenate([*parts, np.zeros(2 * SAMPLE_RATE, dtype=np.float32)])
    samples += (FLOOR * random.standard_normal(len(samples))).astype(np.float32)
    return LabelledAudio(kind, kind, samples, _merged(speech))


def over_telephone(kind: str, audio: LabelledAudio) -> LabelledAudio:
    """The same audio after a telephone line: 8 kHz, mu-law."""
    table = decode_samples(bytes(range(256)), "mulaw")
    order = np.argsort(table, kind="stable")
    line = np.clip(soxr.resample(audio.samples, SAMPLE_RATE, 8000), -1.0, 1.0)
    nearest = np.searchsorted((table[order][1:] + table[order][:-1]) / 2, line)
    samples = soxr.resample(table[order][nearest], 8000, SAMPLE_RATE).astype(np.float32)
    return LabelledAudio(kind, kind, samples[: len(audio.samples)], audio.speech)


def with_noise(kind: str, audio: LabelledAudio, noise: Samples, snr_db: float) -> LabelledAudio:
    """The same audio over a noise that goes on all the time.

    Args:
        kind: of the result.
        audio: clean speech.
        noise: repeated until it is long enough.
        snr_db: the mean power of the speech, without its pauses, over that of the noise, in dB.
    """
    power = np.mean(np.square(np.concatenate([audio.samples[start:end] for start, end in audio.speech])))
    under = np.resize(noise, len(audio.samples))
    gain = np.sqrt(power / np.mean(np.square(noise)) / 10 ** (snr_db / 10))
    mixed = audio.samples + np.float32(gain) * under
    return LabelledAudio(kind, kind, np.clip(mixed, -1.0, 1.0), audio.speech)


def loud_spans(clean: Samples) -> list[Span]:
    """Where clean audio is speech, by its loudness."""
    n_levels = len(clean) // LEVEL_SAMPLES
    power = np.square(clean[: n_levels * LEVEL_SAMPLES]).reshape(n_levels, LEVEL_SAMPLES).mean(axis=1)
    level_db = 10 * np.log10(power + 1e-12)
    is_loud = level_db > np.percentile(level_db, 95) - SPEECH_DB
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_loud, [False])))).reshape(-1, 2) * LEVEL_SAMPLES
    merged = _merged([(int(start), int(end)) for start, end in edges])
    return [(start, end) for start, end in merged if end - start >= MIN_SOUND_S * SAMPLE_RATE]


def _with_times(kind: str, folder: Path, lines: list[dict[str, Any]], manifest_kind: str) -> Iterator[LabelledAudio]:
    """Each channel of the recordings of this kind that have times."""
    for line in lines:
        if line["kind"] != manifest_kind or "segments" not in line:
            continue
        times: dict[str, Any] = json.loads((folder / line["segments"]).read_text())
        channels = _read(folder, line)
        for number, samples in enumerate(channels):
            speech = times["speech_by_channel"][number] if "speech_by_channel" in times else times.get("speech")
            spans = (
                [(round(start * SAMPLE_RATE), round(end * SAMPLE_RATE)) for start, end in speech]
                if speech is not None
                else _in_utterances(samples, [each for each in times["utterances"] if each["channel"] == number])
            )
            yield LabelledAudio(kind, f"{line['file']}, {number}", samples, _merged(spans))


def _in_utterances(samples: Samples, utterances: Sequence[dict[str, Any]]) -> list[Span]:
    """Where a clean recording is speech, within utterances that have quiet edges."""
    spans = []
    for each in utterances:
        at = round(each["start"] * SAMPLE_RATE)
        clip = samples[at : round(each["end"] * SAMPLE_RATE)]
        spans += [(start + at, end + at) for start, end in loud_spans(clip)]
    return spans


def _merged(spans: Sequence[Span], gap_s: float = MERGED_GAP_S) -> tuple[Span, ...]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start - merged[-1][1] < gap_s * SAMPLE_RATE:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def _read(folder: Path, line: dict[str, Any]) -> list[Samples]:
    """The channels of a recording."""
    n_channels = line.get("channels", 1)
    with (folder / line["file"]).open("rb") as file:
        samples = np.concatenate(list(decode_pieces(file, n_channels)))
    return [np.ascontiguousarray(channel) for channel in samples.reshape(-1, n_channels).T]
