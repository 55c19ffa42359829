"""Compares an adapted checkpoint with its original, on audio that neither was trained on, by the engine itself."""

import asyncio
import difflib
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tutti_server.engine.adaptation.clips import Samples
from tutti_server.engine.api import SAMPLE_RATE, WINDOW_SAMPLES, DecodeOptions, DoneEvent, Priority, Window
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

MAX_CLIPS = 400
PIECES_S = (2.0, 25.0, 4.0, 12.0, 1.5, 18.0, 7.0, 29.5)
"""Held-back audio without transcripts is cut into clips of these lengths, in turn."""
SHIFT_S = 0.1
"""The original also reads each clip after this much quiet: how much of its text changes shows how sure it is of it."""
MAX_WORSE = 0.3
"""By how many points (hundredths of all words) errors, and the share of clips with repetition, may be more."""
MAX_UNSTEADY = 1.25
"""How many words may differ without transcripts: those that the shift changes, times this, and a point more."""
MAX_SHIFTED = 25.0
"""If more per cent of the words change by the shift, the original does not understand the audio, and shows nothing."""
_SPEECHLESS_S = (1.0, 2.0, 4.0, 8.0, 15.0, 28.0)
_AT_ONCE = 64
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_UNSPACED = re.compile(r"([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff])")
"""Characters of scripts without spaces. Each of them counts as a word."""


@dataclass(frozen=True, slots=True)
class HeldClip:
    """A clip of at most 30 s that is not trained on."""

    samples: Samples
    text: str | None = None
    """The transcript of the clip, if there is one."""
    is_speech: bool = True


def held_clips(recordings: Sequence[tuple[Samples, str | None]]) -> list[HeldClip]:
    """Cut held-back recordings into clips. One with a transcript is taken whole, and left out if it is too long."""
    clips: list[HeldClip] = []
    for samples, text in recordings:
        if text is not None:
            clips += [HeldClip(samples, text)] if SAMPLE_RATE // 10 <= len(samples) <= WINDOW_SAMPLES else []
            continue
        begin = 0
        while len(samples) - begin >= SAMPLE_RATE:
            end = begin + int(PIECES_S[len(clips) % len(PIECES_S)] * SAMPLE_RATE)
            clips.append(HeldClip(samples[begin:end]))
            begin = end
    clips = (
        [clips[index] for index in sorted({*np.linspace(0, len(clips) - 1, MAX_CLIPS).astype(int)})] if clips else []
    )
    rng = np.random.default_rng(0)
    for length_s in _SPEECHLESS_S:
        quiet = np.zeros(int(length_s * SAMPLE_RATE), np.float32)
        noise = (0.02 * rng.standard_normal(len(quiet))).astype(np.float32)
        clips += [HeldClip(quiet, is_speech=False), HeldClip(noise, is_speech=False)]
    return clips


def read(
    model: Path, clips: Sequence[HeldClip], device: str, audio_context: Literal["auto", "full"]
) -> list[DoneEvent]:
    """Transcribe clips by a model, with the settings that users have by default."""
    config = EngineConfig(
        model=str(model), device=device, audio_context=audio_context, max_encode_batch=16, cuda_graphs=False,  # type: ignore[arg-type]  # checked by EngineConfig
        n_slots=_AT_ONCE if device == "cuda" else None, kernels="torch",
    )  # fmt: skip
    return asyncio.run(_read(config, clips))


async def _read(config: EngineConfig, clips: Sequence[HeldClip]) -> list[DoneEvent]:
    free = asyncio.Semaphore(_AT_ONCE)
    options = DecodeOptions(word_times=True)

    async def one(engine: Engine, clip: HeldClip) -> DoneEvent:
        window = Window(samples=clip.samples, session="adapt", priority=Priority.FILE, options=options)
        async with free, engine.submit(window) as events:
            return [event async for event in events if isinstance(event, DoneEvent)][-1]

    async with Engine.start(config) as engine:
        return await asyncio.gather(*(one(engine, clip) for clip in clips))


def evaluate(
    original: Path, adapted: Path, clips: Sequence[HeldClip], device: str, say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Compare two checkpoints. All figures but times, counts and differences of probabilities are per cent."""
    quiet = np.zeros(int(SHIFT_S * SAMPLE_RATE), np.float32)
    shifted = [replace(clip, samples=np.concatenate((quiet, clip.samples))[:WINDOW_SAMPLES]) for clip in clips]
    transcripts: dict[str, list[DoneEvent]] = {}
    for name, model, these, context in (
        ("original_full", original, clips, "full"),
        ("original_shifted", original, shifted, "full"),
        ("adapted_cut", adapted, clips, "auto"),
        ("adapted_full", adapted, clips, "full"),
    ):
        say(f"reading {len(clips)} held-back clips: {name.replace('_', ', ')}")
        transcripts[name] = read(model, these, device, context)  # type: ignore[arg-type]  # a tuple widens the literals
    speech = [index for index, clip in enumerate(clips) if clip.is_speech]
    with_text = [index for index in speech if clips[index].text is not None]
    texts = [split_words(clip.text or "") for clip in clips]
    words_of = {name: [split_words(each.text) for each in done] for name, done in transcripts.items()}
    original_words, reference = words_of["original_full"], transcripts["original_full"]
    report: dict[str, Any] = {
        "clips": len(speech), "clips_with_transcripts": len(with_text),
        "seconds": round(sum(len(clips[index].samples) for index in speech) / SAMPLE_RATE, 1),
    }  # fmt: skip
    for name, done in transcripts.items():
        words = words_of[name]
        report[name] = {
            "words_differing": _errors(original_words, words, speech),
            "word_errors": _errors(texts, words, with_text),
            "repetitive": sum(done[index].is_repetitive for index in speech),
            "same_language": _percent([done[index].language == reference[index].language for index in speech]),
            "no_speech_difference": round(max(
                abs(done[index].no_speech_prob - reference[index].no_speech_prob)
                for index, clip in enumerate(clips) if not clip.is_speech
            ), 4),
            "words_in_quiet": sum(len(words[index]) for index, clip in enumerate(clips) if not clip.is_speech),
            "word_starts_s": _word_starts([(reference[index], done[index]) for index in speech]),
        }  # fmt: skip
    return report


def objection(report: dict[str, Any]) -> str | None:
    """Why an adapted checkpoint is not good enough, naming the figure; `None` if it is."""
    original, shifted, cut = (report[name] for name in ("original_full", "original_shifted", "adapted_cut"))
    limit = original["repetitive"] + MAX_WORSE / 100 * report["clips"]
    if cut["repetitive"] > limit:
        return (
            f"repetitive texts: expected at most {limit:.0f} in {report['clips']} clips with cut windows, got "
            f"{cut['repetitive']}; the original has {original['repetitive']}"
        )
    if cut["word_errors"] is not None:
        limit = original["word_errors"] + MAX_WORSE
        if cut["word_errors"] > limit:
            return (
                f"word errors: expected at most {limit:.2f} % with cut windows, {MAX_WORSE} points more than the "
                f"original, got {cut['word_errors']:.2f} %"
            )
        return None
    return _objection_to_words(shifted["words_differing"], cut["words_differing"])


def _objection_to_words(shifted: float | None, cut: float | None) -> str | None:
    """An objection without transcripts, by the per cent of words that the shift and the cut windows change."""
    if shifted is None or cut is None:
        return "held-back audio: expected speech that the original transcribes, got none"
    if shifted > MAX_SHIFTED:
        return (
            f"held-back audio: expected speech that the original understands, but {shifted:.2f} % of its words change "
            f"where it reads the same audio {SHIFT_S} s later, above {MAX_SHIFTED:.0f} %"
        )
    limit = MAX_UNSTEADY * shifted + 1.0
    if cut > limit:
        return (
            f"words that differ from the original's: expected at most {limit:.2f} % with cut windows, as "
            f"{shifted:.2f} % differ where the original reads the same audio {SHIFT_S} s later, got {cut:.2f} %"
        )
    return None


def split_words(text: str) -> list[str]:
    """The words of a text without case and punctuation; each character of a script without spaces is one."""
    text = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
    return [part for word in _WORD.findall(text) for part in _UNSPACED.sub(r" \1 ", word).split()]


def edit_distance(left: Sequence[str], right: Sequence[str]) -> int:
    """How many words must be substituted, left out or added to make one text of the other."""
    row = list(range(len(right) + 1))
    for i, word in enumerate(left, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(right, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]


def _errors(expected: Sequence[list[str]], got: Sequence[list[str]], indices: Sequence[int]) -> float | None:
    n_words = sum(len(expected[index]) for index in indices)
    n_errors = sum(edit_distance(expected[index], got[index]) for index in indices)
    return round(100 * n_errors / n_words, 2) if n_words else None


def _percent(values: Sequence[bool]) -> float | None:
    return round(100 * sum(values) / len(values), 1) if values else None


def _word_starts(pairs: Sequence[tuple[DoneEvent, DoneEvent]]) -> dict[str, float] | None:
    """How far apart the starts of equal words are, in seconds."""
    apart: list[float] = []
    for pair in pairs:
        left, right = ([word for segment in done.segments for word in segment.words or ()] for done in pair)
        mine, theirs = ([word.text.strip().lower() for word in words] for words in (left, right))
        for block in difflib.SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks():
            apart += [
                abs(left[block.a + index].start_s - right[block.b + index].start_s) for index in range(block.size)
            ]
    if not apart:
        return None
    return {
        "words": len(apart),
        "median": round(float(np.median(apart)), 3),
        "p95": round(float(np.quantile(apart, 0.95)), 3),
    }
