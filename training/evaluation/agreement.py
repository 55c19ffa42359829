"""Measures what must not change the text (the audio context, the engine instead of transformers), and prompts."""

import random
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.scoring import words
from engine.checkpoint.checkpoint import read_checkpoint
from training.evaluation.bench import SEED, Bench, error_row, total
from training.evaluation.card import Row, make_row
from training.evaluation.clips import SINGLE_SENTENCES, Clip, windows_of
from training.evaluation.held_out import TRAINED, VOICES, own_sentences
from training.evaluation.reference import Reference
from training.evaluation.subjects import SERVICE_OPTIONS, DecodedClip, Subject
from training.text.corpus import NAMED_SENTENCES

CONTEXT_S = (5.0, 25.0)
"""Shortest and longest window, in seconds, for which the audio context is measured."""
PARITY_CLIPS = 20
"""Clips that are compared with transformers."""
N_VOICES_PER_NAME = 5
"""Voices that speak each sentence with a name."""
N_DISTRACTORS = 6
"""Names in a glossary that are not spoken."""

NAMED = [
    (text, names)
    for line in NAMED_SENTENCES.read_text(encoding="utf-8").splitlines()
    for text, names in [line.split("\t")]
]
"""Sentences with rare names and terms, each with the names as a user would list them."""


async def context(bench: Bench) -> list[Row]:
    """Compare windows at the full 30 s with the same windows at the length of their audio plus the margin."""
    part = "Audio context"
    windows: list[Clip] = []
    r = random.Random(SEED)
    listed = bench.listed(*(f"synth-{kind}" for kind in SINGLE_SENTENCES))
    held_out = bench.voices.in_turn(own_sentences(), list(VOICES)) if bench.voices else []
    for name, clips in (("shared audio", listed), ("held_out", held_out)):
        for number in range(2):
            row = r.sample(clips, len(clips))
            windows += [replace(w, group=name) for w in windows_of(row, r, f"{name}-{number}", CONTEXT_S)]
    windows = [window for window in windows if CONTEXT_S[0] <= window.audio_s <= CONTEXT_S[1]]
    if read_checkpoint(str(bench.model)).generation.audio_context is None:
        return [make_row(part, "difference", None, "points", 0.003, of="the checkpoint takes full windows alone")]
    short = await bench.subject.transcribe(windows)
    async with Subject.start(str(bench.model), "full") as subject:
        full = await subject.transcribe(windows)
    share = _share_same([each.text for each in short], [each.text for each in full])
    return [
        error_row(part, "full window", full),
        error_row(part, "audio's length and a margin", short),
        make_row(part, "difference", _difference(short, full), "points", 0.003),
        make_row(part, "texts that are the same", share, "%", of=f"{len(windows)} windows"),
    ]


async def prompts(bench: Bench) -> list[Row]:
    """Measure rare names with and without a list of names in the prompt, and sentences after other text."""
    part = "Prompts"
    texts, voices = [text for text, _ in NAMED], list(TRAINED)
    clips: list[Clip] = []
    for turn in range(N_VOICES_PER_NAME):
        turned = voices[turn:] + voices[:turn]
        clips += bench.with_silence(bench.voices.in_turn(texts, turned)) if bench.voices else []
    own = dict(NAMED)
    r = random.Random(SEED)
    lists: list[list[str]] = []
    for clip in clips:
        others = r.sample([names for text, names in NAMED if text != clip.text], N_DISTRACTORS)
        lists.append(r.sample([own[clip.text], *others], N_DISTRACTORS + 1))
    plain = await bench.subject.transcribe(clips)
    prompted = await bench.subject.transcribe(
        clips, [replace(SERVICE_OPTIONS, previous_text=", ".join(names)) for names in lists]
    )
    hotwords = [tuple(", ".join(names).split(", ")) for names in lists]
    expected = await bench.subject.transcribe(clips, [replace(SERVICE_OPTIONS, hotwords=names) for names in hotwords])
    held_out = bench.held_out
    alone = await bench.subject.transcribe(held_out)
    carried = await bench.subject.transcribe(
        held_out, [replace(SERVICE_OPTIONS, previous_text=held_out[index - 1].text) for index in range(len(held_out))]
    )
    # Hotwords that are not spoken must not appear in the text.
    unsaid = await bench.subject.transcribe(
        held_out, [replace(SERVICE_OPTIONS, hotwords=hotwords[index % len(hotwords)]) for index in range(len(held_out))]
    )
    return [
        error_row(part, "sentences with rare names", plain),
        error_row(part, "the same with a list of names as previous text", prompted),
        error_row(part, "the same with hotwords", expected),
        make_row(part, "names decoded right", share_of_names_found(plain), "%"),
        make_row(part, "names decoded right with a list as previous text", share_of_names_found(prompted), "%"),
        make_row(part, "names decoded right with hotwords", share_of_names_found(expected), "%"),
        error_row(part, "held_out sentences alone", alone),
        error_row(part, "behind the sentence before", carried),
        make_row(part, "difference", _difference(carried, alone), "points"),
        error_row(part, "with hotwords that nobody says", unsaid),
    ]


def share_of_names_found(decoded: Sequence[DecodedClip]) -> float | None:
    """The share of the words of all names that stand in the text, or `None` without names."""
    own = dict(NAMED)
    wanted = [(word, words(each.text)) for each in decoded for word in words(own[each.clip.text])]
    return sum(word in text for word, text in wanted) / len(wanted) if wanted else None


async def parity(bench: Bench) -> list[Row]:
    """Compare the engine with transformers, both greedy and without timestamps."""
    clips = (bench.listed("synth-call", "synth-number", "synth-spell")[::4] + bench.held_out)[:PARITY_CLIPS]
    part, of = "Parity with transformers", f"{len(clips)} clips"
    # transformers always encodes full windows.
    async with Subject.start(str(bench.model), "full") as subject:
        decoded = await subject.transcribe(clips, replace(SERVICE_OPTIONS, timestamps=False))
    theirs = Reference(bench.model).texts(clips) if clips else []
    share = _share_same([each.text for each in decoded], theirs)
    return [make_row(part, "texts that are the same", share, "%", 1.0, at_least=True, of=of)]


def _difference(decoded: Sequence[DecodedClip], other: Sequence[DecodedClip]) -> float | None:
    rate, other_rate = total(decoded).rate, total(other).rate
    return None if rate is None or other_rate is None else rate - other_rate


def _share_same(texts: Sequence[str], others: Sequence[str]) -> float | None:
    same = [text.strip() == other.strip() for text, other in zip(texts, others, strict=True)]
    return sum(same) / len(same) if same else None
