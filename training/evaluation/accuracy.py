"""Measures word error rates: clean speech by voice, dialogues through the service, telephone, noise, human speech."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.files.word_normaliser import word_errors
from benchmarks.scoring import WordErrors
from engine.api import WINDOW_SAMPLES
from training.evaluation.augment import babble, coloured_noise, telephone, with_noise
from training.evaluation.bench import SEED, Bench, error_row, rows_by_group
from training.evaluation.card import Row, make_row
from training.evaluation.clips import SINGLE_SENTENCES, Clip, read_channels
from training.evaluation.held_out import TRAINED, UNSEEN, own_sentences
from training.evaluation.subjects import text_of
from training.speech import sounds

SENTENCES_EACH = 40
"""Sentences of each trained voice. Unseen voices speak all sentences."""
SNR_DB = 5.0
"""Speech is this many decibels above the noise."""
NOISES = ("white", "pink", "babble", "music", "other sounds")
MUSIC = ("music", "melody")
INTERIMS_S = 150.0
"""Dialogues up to this length, in seconds, are also streamed with interims."""
INTERIMS_SPEED = 4.0
"""Speed of that stream, as a multiple of real time."""


async def sentences(bench: Bench) -> list[Row]:
    """Measure single synthetic sentences of the shared audio."""
    decoded = await bench.subject.transcribe(bench.listed(*(f"synth-{kind}" for kind in SINGLE_SENTENCES)))
    bench.keep(decoded)
    part = "Synthetic sentences, shared audio"
    return [error_row(part, "together", decoded, 0.06), *rows_by_group(part, decoded)]


async def voices(bench: Bench) -> list[Row]:
    """Measure sentences that were never trained on, by trained and by unseen voices."""
    rows: list[Row] = []
    texts = own_sentences()
    for part, names, count, target in (
        ("Fresh sentences, trained voices", TRAINED, SENTENCES_EACH, 0.06),
        ("Fresh sentences, unseen voices", UNSEEN, len(texts), 0.10),
    ):
        # Every voice speaks another part of the sentences.
        chosen = {
            name: [texts[(index * 17 + i) % len(texts)] for i in range(min(count, len(texts)))]
            for index, name in enumerate(names)
        }
        clips = bench.voices.speak(chosen) if bench.voices else []
        decoded = await bench.subject.transcribe(bench.with_silence(clips))
        rows += [error_row(part, "together", decoded, target), *rows_by_group(part, decoded)]
    return rows


async def dialogues(bench: Bench) -> list[Row]:
    """Measure whole recordings streamed through the service, with their finals joined."""
    part, rows = "Streamed through the service", []
    errors, n_files = WordErrors(), 0
    for line in _lines(bench, "synth-dialogue"):
        channels = read_channels(bench.audio / line["file"])
        text = text_of(await bench.subject.stream(channels))
        bench.hypotheses[line["file"]] = text
        found = word_errors(line["text"], text)
        errors, n_files = errors + found, n_files + 1
        rows.append(_file_row(part, line["file"].split("/")[-1], found))
        if line["seconds"] <= INTERIMS_S:
            with_interims = text_of(await bench.subject.stream(channels, interims_speed=INTERIMS_SPEED))
            name = f"{line['file'].split('/')[-1]}, with interims, {INTERIMS_SPEED:.0f} times real time"
            rows.append(_file_row(part, name, word_errors(line["text"], with_interims)))
    together = make_row(part, "dialogues together", errors.rate, "%", 0.08, of=f"{n_files} files, {errors.words} words")
    return [together, *rows, *await _calls(bench, "synth-call-stereo", part)]


async def telephones(bench: Bench) -> list[Row]:
    """Measure clean clips through a simulated telephone line."""
    part = "Telephone: 300 to 3400 Hz, 8 kHz mu-law"
    listed = bench.listed("synth-call")
    clips = [replace(clip, samples=telephone(clip.samples)) for clip in listed + bench.held_out]
    decoded = await bench.subject.transcribe(clips)
    together = error_row(part, "together", decoded, 0.12)
    return [
        together,
        error_row(part, "synth-call", decoded[: len(listed)]),
        error_row(part, "fresh sentences", decoded[len(listed) :]),
    ]


async def noise(bench: Bench) -> list[Row]:
    """Measure every clip with every kind of noise."""
    part = f"Noise at {SNR_DB:.0f} dB"
    clips = bench.listed("synth-call", "synth-lecture") + bench.held_out
    noisy = [noisy_clip(clip, kind, clips, index) for kind in NOISES for index, clip in enumerate(clips)]
    decoded = await bench.subject.transcribe(noisy)
    return [error_row(part, "together", decoded, 0.15), *rows_by_group(part, decoded)]


def noisy_clip(clip: Clip, kind: str, others: Sequence[Clip], seed: int) -> Clip:
    """Add noise of this kind to a clip. Babble is made of the other clips."""
    random_numbers = np.random.default_rng((SEED, seed))
    n_samples = len(clip.samples)
    match kind:
        case "white" | "pink":
            noise = coloured_noise(n_samples, 0.0 if kind == "white" else 0.5, random_numbers)
        case "babble":
            noise = babble(n_samples, [other.samples for other in others if other is not clip], random_numbers)
        case _:
            kinds = MUSIC if kind == "music" else tuple(each for each in sounds.KINDS if each not in MUSIC)
            # A seed that training does not draw its sounds with.
            made = sounds.make(
                kinds[seed % len(kinds)], n_samples, sounds.Random(torch.device("cpu"), SEED + 1000 + seed)
            )
            noise = made.numpy()
    return replace(clip, name=f"{clip.name} {kind}", group=kind, samples=with_noise(clip.samples, noise, SNR_DB))


async def people(bench: Bench) -> list[Row]:
    """Measure human speech by kind. The model was never trained on human speech."""
    part = "Human speech"
    kinds = sorted({line["kind"] for line in bench.lines if line["kind"].startswith("human-")})
    rows: list[Row] = []
    for kind in kinds:
        lines = [line for line in _lines(bench, kind) if line["text"]]
        clips = [clip for clip in bench.listed(kind) if clip.text]
        if all(len(clip.samples) <= WINDOW_SAMPLES for clip in clips):
            decoded = await bench.subject.transcribe(clips)
            bench.keep(decoded)
            rows.append(error_row(part, kind, decoded))
            continue
        errors = WordErrors()
        for line, clip in zip(lines, clips, strict=True):
            text = text_of(await bench.subject.stream(clip.samples[None], clip.language))
            bench.hypotheses[line["file"]] = text
            errors += word_errors(line["text"], text, clip.language)
        rows.append(make_row(part, kind, errors.rate, "%", of=f"{len(clips)} files, {errors.words} words, streamed"))
    return rows + await _calls(bench, "call-stereo-human", part)


async def _calls(bench: Bench, kind: str, part: str) -> list[Row]:
    """Measure calls with one side on each channel, scored by channel."""
    errors = [WordErrors(), WordErrors()]
    lines = _lines(bench, kind)
    for line in lines:
        utterances = await bench.subject.stream(read_channels(bench.audio / line["file"]))
        bench.hypotheses[line["file"]] = text_of(utterances)
        for channel, text in enumerate(line["channel_text"]):
            errors[channel] += word_errors(text, text_of(utterances, channel))
    names = ("left", "right")
    return [
        make_row(part, f"{kind}, {name} channel", each.rate, "%", of=f"{len(lines)} files, {each.words} words")
        for name, each in zip(names, errors, strict=True)
        if lines
    ]


def _lines(bench: Bench, kind: str) -> list[dict[str, Any]]:
    return [line for line in bench.lines if line["kind"] == kind]


def _file_row(part: str, name: str, errors: WordErrors) -> Row:
    return make_row(part, name, errors.rate, "%", of=f"{errors.words} words")
