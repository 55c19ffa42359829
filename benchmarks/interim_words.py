"""What do the words of interims cost, and how far would their times have moved until the final text?

    python -m benchmarks.interim_words --audio FOLDER

The same recordings are heard without words, with words in finals, and with words in interims as well. Sessions run in
audio time, one after the other, so that the processor time is that of one session.
"""

import asyncio
import time
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from app.media.pcm import AudioFormat
from app.session import commands, events
from app.session.session import Session, SessionConfig
from app.session.stabilizer import POLICIES
from benchmarks import machine, report
from benchmarks.live.audio_time import run_in_audio_time
from benchmarks.options import (
    CONTEXT_SETTINGS,
    audio_option,
    json_option,
    kind_option,
    markdown_option,
    match_option,
)
from benchmarks.recordings import Recording, load_recordings, with_silence
from benchmarks.report import NO_VALUE, Table, number, percent
from benchmarks.scoring import summary
from engine import api
from engine.api import Transcriber
from engine.config import EngineConfig
from engine.decoding.word_timing import STATE_S
from engine.process_environment import prepare_environment

TAIL_S = 2.0
"""Seconds of silence after each recording, so that its last utterance ends."""
START = commands.Start(audio=AudioFormat("pcm_f32le"), language="en")
MODES = {
    "none": START,
    "in finals": replace(START, words=True),
    "in finals and interims": replace(START, words=True, interim_words=True),
}
MOVES_S = (0.0, STATE_S, 5 * STATE_S)
"""Words are counted that move by at most this much, in seconds. A timestamp token has steps of `STATE_S`."""
ROUNDING_S = 0.0015
"""Times of the session are rounded to milliseconds, so that equal times may differ by this much."""


@dataclass(slots=True, kw_only=True)
class WordsRun:
    """What was measured on one recording, or on several together. It observes a session."""

    audio_s: float = 0.0
    cpu_s: float = 0.0
    """Seconds of processor time of this process, engine and session together."""
    interims_s: list[float] = field(default_factory=list)
    """Seconds of processor time for each interim."""
    n_words: int = 0
    """Words of the finals that have times."""
    starts_s: list[float] = field(default_factory=list)
    """By how much the start of each stable word differs in the alignment of its final, in seconds."""
    ends_s: list[float] = field(default_factory=list)
    """The same for its end."""
    confidences: list[float] = field(default_factory=list)
    """The same for its confidence."""
    n_changed: int = 0
    """Words that were sent with other times in the final than in an interim."""
    _shown: tuple[events.Word, ...] = ()
    """The stable words of the last interim, without those that became final since."""
    _segments: deque[api.Segment] = field(default_factory=deque)
    """The segments of the last finals, as the engine aligned them."""

    def on_window(self, window: api.Window, answers: list[api.EngineEvent], cpu_s: float) -> None:
        """See `Observer`."""
        if window.is_interim:
            self.interims_s.append(cpu_s)
        else:
            self._segments.extend(answer.segment for answer in answers if isinstance(answer, api.SegmentEvent))

    def on_event(self, at_s: float, event: events.Event) -> None:
        """See `Observer`."""
        if isinstance(event, events.Interim):
            self._shown = event.stable_words
        elif isinstance(event, events.Segment) and event.words:
            self._add_segment(event)

    def _add_segment(self, event: events.Segment) -> None:
        self.n_words += len(event.words)
        while self._segments:
            own = self._segments.popleft()
            if own.text.strip() == event.text.strip():
                break
        else:
            return
        shown, self._shown = self._shown[: len(event.words)], self._shown[len(event.words) :]
        for old, word, aligned in zip(shown, event.words, own.words or (), strict=False):
            self.n_changed += (old.start_s, old.end_s, old.confidence) != (word.start_s, word.end_s, word.confidence)
            self.starts_s.append(abs(event.window_start_s + aligned.start_s - old.start_s))
            self.ends_s.append(abs(event.window_start_s + aligned.end_s - old.end_s))
            self.confidences.append(abs(aligned.probability - old.confidence))


async def run_once(
    engine: Transcriber, recording: Recording, config: SessionConfig, start: commands.Start, found: WordsRun
) -> None:
    """Run one session, and add what is measured to `found`."""
    begun_s = time.process_time()
    await run_in_audio_time(Session("bench", engine.info, config), start, engine, recording.samples, found)
    found.cpu_s += time.process_time() - begun_s
    found.audio_s += recording.audio_s


async def compare(
    recordings: list[Recording], config: SessionConfig, model: str, n_threads: int, n_rounds: int
) -> dict[str, WordsRun]:
    """Run all recordings in each of `MODES`. The modes take turns, so that other work disturbs all of them equally."""
    from engine.engine import Engine

    found = {name: WordsRun() for name in MODES}
    async with Engine.start(EngineConfig(model=model, device="cpu", max_wait_ms=0, n_threads=n_threads)) as engine:
        await run_once(engine, recordings[0], config, MODES["in finals and interims"], WordsRun())
        for _ in range(n_rounds):
            for recording in recordings:
                for name, start in MODES.items():
                    await run_once(engine, recording, config, start, found[name])
    return found


def row(name: str, found: WordsRun) -> dict[str, Any]:
    """The figures of one mode, as the result file holds them."""
    return {
        "words": name,
        "audio_s": found.audio_s,
        "cpu_s_per_audio_s": found.cpu_s / found.audio_s,
        "interims_per_s": len(found.interims_s) / found.audio_s,
        "interim_cpu_s": summary(found.interims_s),
        "n_words": found.n_words,
        "n_stable_words": len(found.starts_s),
        "n_changed": found.n_changed,
        "start_moved_s": moved(found.starts_s),
        "end_moved_s": moved(found.ends_s),
        "confidence_moved": summary(found.confidences),
    }


def moved(values_s: list[float]) -> dict[str, Any]:
    """A summary of how far times have moved, with the share of those that moved by at most each of `MOVES_S`."""
    within = Counter({limit_s: sum(value_s <= limit_s + ROUNDING_S for value_s in values_s) for limit_s in MOVES_S})
    shares = {f"within_{limit_s:g}_s": within[limit_s] / len(values_s) if values_s else None for limit_s in MOVES_S}
    return {**summary(values_s), **shares}


def tables(rows: list[dict[str, Any]]) -> list[Table]:
    """The costs of each mode, and how far times have moved."""
    base = rows[0]["cpu_s_per_audio_s"]
    costs = [
        (
            each["words"],
            number(each["cpu_s_per_audio_s"], 3),
            f"{100 * (each['cpu_s_per_audio_s'] / base - 1):+.1f}",
            number(each["interims_per_s"]),
            _milliseconds(each["interim_cpu_s"]["p50"]),
            _milliseconds(each["interim_cpu_s"]["p95"]),
        )
        for each in rows
    ]
    with_interims = rows[-1]
    moves = [
        (
            what,
            str(each["n"]),
            *(percent(each[f"within_{limit_s:g}_s"]) for limit_s in MOVES_S),
            number(each["p95"]),
            number(each["max"]),
            str(with_interims["n_changed"]),
        )
        for what, each in (("start", with_interims["start_moved_s"]), ("end", with_interims["end_moved_s"]))
    ]
    limits = (f"within\n{limit_s:.2f} s %" for limit_s in MOVES_S)
    return [
        Table(
            "Cost of words",
            (
                "words",
                "CPU s\nper audio s",
                "more %",
                "interims\nper s",
                "CPU ms per\ninterim p50",
                "CPU ms per\ninterim p95",
            ),
            costs,
        ),
        Table(
            "Times of stable words beside the alignment of the final",
            ("time", "stable\nwords", *limits, "p95 s", "max s", "sent\nchanged"),
            moves,
        ),
    ]


def _milliseconds(value_s: float | None) -> str:
    return NO_VALUE if value_s is None else f"{1000 * value_s:.0f}"


@click.command(context_settings=CONTEXT_SETTINGS)
@audio_option
@kind_option
@match_option
@click.option("--seconds", default=60.0, show_default=True, help="Length of a recording, in seconds.")
@click.option("--recordings", "n_recordings", default=4, show_default=True, help="Number of recordings.")
@click.option("--rounds", "n_rounds", default=1, show_default=True, help="How many times to run them.")
@click.option("--interval-ms", default=350, show_default=True, help="Least audio between two interims, in ms.")
@click.option("--stability", type=click.Choice(list(POLICIES)), default="agreement", show_default=True)
@click.option("--model", default="tutti-base", show_default=True)
@click.option("--threads", "n_threads", default=1, show_default=True, help="Threads of the engine.")
@json_option("interim_words")
@markdown_option
def main(
    folder: Path | None,
    kind: str,
    match: str,
    seconds: float,
    n_recordings: int,
    n_rounds: int,
    interval_ms: int,
    stability: str,
    model: str,
    n_threads: int,
    path: Path,
    markdown: bool,
) -> None:
    """Compare sessions without words, with words in finals, and with words in interims."""
    prepare_environment()
    recordings = load_recordings(folder, kind, match, seconds=seconds, n=n_recordings)
    recordings = [with_silence(each, TAIL_S) for each in recordings[:n_recordings]]
    config = SessionConfig(interim_interval_ms=interval_ms, make_policy=POLICIES[stability])
    found = asyncio.run(compare(recordings, config, model, n_threads, n_rounds))
    rows = [row(name, each) for name, each in found.items()]
    result = {
        "benchmark": "interim_words",
        "schema": 1,
        **machine.describe(),
        "audio": str(folder or "bundled"),
        "rows": rows,
    }
    report.show(tables(rows), result, as_markdown=markdown, path=path)


if __name__ == "__main__":
    main()
