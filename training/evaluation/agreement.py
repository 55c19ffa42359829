"""What must not change the text: the audio context, the engine in place of transformers; and what prompts change."""

import random
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.scoring import words
from engine.checkpoint.checkpoint import read_checkpoint
from training.evaluation.bench import SEED, Bench, error_row, total
from training.evaluation.card import Row
from training.evaluation.clips import SINGLE_SENTENCES, Clip, windows_of
from training.evaluation.held_out import TRAINED, VOICES, own_sentences
from training.evaluation.reference import Reference
from training.evaluation.subjects import SERVED, Heard, Listener
from training.text.corpus import NAMED_SENTENCES

CONTEXT_S = (5.0, 25.0)
PARITY_CLIPS = 20
N_VOICES_A_NAME = 5
N_DISTRACTORS = 6
"""Names in a glossary that are not said."""

NAMED = [
    (text, names)
    for line in NAMED_SENTENCES.read_text(encoding="utf-8").splitlines()
    for text, names in [line.split("\t")]
]
"""Sentences with rare names and terms, as a user would list them."""


async def context(bench: Bench) -> list[Row]:
    """The same windows at the full 30 s and at the audio's own length plus the checkpoint's margin."""
    part = "Audio context"
    windows: list[Clip] = []
    r = random.Random(SEED)
    listed = bench.listed(*(f"synth-{kind}" for kind in SINGLE_SENTENCES))
    fresh = bench.voices.in_turn(own_sentences(), list(VOICES)) if bench.voices else []
    for name, clips in (("shared audio", listed), ("fresh", fresh)):
        for number in range(2):
            row = r.sample(clips, len(clips))
            windows += [replace(w, group=name) for w in windows_of(row, r, f"{name}-{number}", CONTEXT_S)]
    windows = [window for window in windows if CONTEXT_S[0] <= window.audio_s <= CONTEXT_S[1]]
    if read_checkpoint(str(bench.model)).generation.audio_context is None:
        return [Row(part, "difference", None, "points", 0.003, of="the checkpoint takes full windows alone")]
    short = await bench.listener.hear(windows)
    async with Listener.start(str(bench.model), "full") as listener:
        full = await listener.hear(windows)
    share = _share_same([each.text for each in short], [each.text for each in full])
    return [
        error_row(part, "full window", full),
        error_row(part, "audio's length and a margin", short),
        Row(part, "difference", _difference(short, full), "points", 0.003),
        Row(part, "texts that are the same", share, "%", of=f"{len(windows)} windows"),
    ]


async def prompts(bench: Bench) -> list[Row]:
    """Rare names with and without a list of them before the window, and sentences behind other text."""
    part = "Prompts"
    texts, voices = [text for text, _ in NAMED], list(TRAINED)
    clips: list[Clip] = []
    for turn in range(N_VOICES_A_NAME):
        turned = voices[turn:] + voices[:turn]
        clips += bench.with_silence(bench.voices.in_turn(texts, turned)) if bench.voices else []
    own = dict(NAMED)
    r = random.Random(SEED)
    lists: list[list[str]] = []
    for clip in clips:
        others = r.sample([names for text, names in NAMED if text != clip.text], N_DISTRACTORS)
        lists.append(r.sample([own[clip.text], *others], N_DISTRACTORS + 1))
    plain = await bench.listener.hear(clips)
    prompted = await bench.listener.hear(clips, [replace(SERVED, previous_text=", ".join(names)) for names in lists])
    hotwords = [tuple(", ".join(names).split(", ")) for names in lists]
    expected = await bench.listener.hear(clips, [replace(SERVED, hotwords=names) for names in hotwords])
    fresh = bench.fresh
    alone = await bench.listener.hear(fresh)
    carried = await bench.listener.hear(
        fresh, [replace(SERVED, previous_text=fresh[index - 1].text) for index in range(len(fresh))]
    )
    # Names that nobody says must not come.
    unsaid = await bench.listener.hear(
        fresh, [replace(SERVED, hotwords=hotwords[index % len(hotwords)]) for index in range(len(fresh))]
    )
    return [
        error_row(part, "sentences with rare names", plain),
        error_row(part, "the same with a list of names as previous text", prompted),
        error_row(part, "the same with hotwords", expected),
        Row(part, "names heard right", names_heard(plain), "%"),
        Row(part, "names heard right with a list as previous text", names_heard(prompted), "%"),
        Row(part, "names heard right with hotwords", names_heard(expected), "%"),
        error_row(part, "fresh sentences alone", alone),
        error_row(part, "behind the sentence before", carried),
        Row(part, "difference", _difference(carried, alone), "points"),
        error_row(part, "with hotwords that nobody says", unsaid),
    ]


def names_heard(heard: Sequence[Heard]) -> float | None:
    """The share of the names' words that stand in the text."""
    own = dict(NAMED)
    wanted = [(word, words(each.text)) for each in heard for word in words(own[each.clip.text])]
    return sum(word in text for word, text in wanted) / len(wanted) if wanted else None


async def parity(bench: Bench) -> list[Row]:
    """`from_pretrained` and the engine write the same, greedily and without timestamps."""
    clips = (bench.listed("synth-call", "synth-number", "synth-spell")[::4] + bench.fresh)[:PARITY_CLIPS]
    part, of = "Parity with transformers", f"{len(clips)} clips"
    # transformers encodes full windows.
    async with Listener.start(str(bench.model), "full") as listener:
        heard = await listener.hear(clips, replace(SERVED, timestamps=False))
    theirs = Reference(bench.model).texts(clips) if clips else []
    share = _share_same([each.text for each in heard], theirs)
    return [Row(part, "texts that are the same", share, "%", 1.0, at_least=True, of=of)]


def _difference(heard: Sequence[Heard], other: Sequence[Heard]) -> float | None:
    rate, other_rate = total(heard).rate, total(other).rate
    return None if rate is None or other_rate is None else rate - other_rate


def _share_same(texts: Sequence[str], others: Sequence[str]) -> float | None:
    same = [text.strip() == other.strip() for text, other in zip(texts, others, strict=True)]
    return sum(same) / len(same) if same else None
