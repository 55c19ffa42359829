"""Compares the policies of `--stability`: live sessions in audio time, with an engine that takes no time.

    python -m benchmarks.stability --audio FOLDER
    python -m benchmarks.stability --audio FOLDER --audio-contexts full,interims

Every hypothesis is complete before the next sample arrives. So only the policy is measured, and a repeated run gives
the same figures whatever else the machine does.
"""

import asyncio
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import click

from app.media.pcm import AudioFormat
from app.session import commands, events
from app.session.session import Session, SessionConfig
from app.session.stabilizer import Agreement, Attention, MakePolicy
from benchmarks import machine, report
from benchmarks.live.audio_time import run_in_audio_time
from benchmarks.live.captions import Caption, WordLatencies, measure_words, spoken_words
from benchmarks.options import (
    CONTEXT_SETTINGS,
    audio_option,
    json_option,
    kind_option,
    markdown_option,
    match_option,
)
from benchmarks.recordings import Recording, load_recordings, with_silence
from benchmarks.report import Table, number, percent
from benchmarks.scoring import WordErrors, word_errors, word_summary
from engine import api
from engine.api import Transcriber
from engine.checkpoint.checkpoint import find_checkpoint
from engine.config import AudioContext, EngineConfig
from engine.process_environment import prepare_environment

TAIL_S = 2.0
"""Seconds of silence after each recording, so that its last utterance ends."""
START = commands.Start(audio=AudioFormat("pcm_f32le"), language="en")


@dataclass(slots=True)
class PolicyResult:
    """What a policy achieved on one recording, or on several together. Latencies are in seconds of audio."""

    latencies: WordLatencies = field(default_factory=WordLatencies)
    errors: WordErrors = field(default_factory=WordErrors)
    n_hypotheses: int = 0
    """Windows given to the engine."""


class CaptionBuilder:
    """Builds the text that a reader sees from the events of a session."""

    def __init__(self) -> None:
        self.seen: list[Caption] = []
        self._ended: dict[int, str] = {}
        self._open: dict[int, tuple[str, str]] = {}
        """By utterance: its final segments with the stable text after them, and with all text after them."""

    def apply(self, at_s: float, event: events.Event) -> None:
        """Update the text with an event that arrived at `at_s` seconds of audio."""
        match event:
            case events.Interim():
                final_text = self._ended.get(event.utterance, "")
                self._open[event.utterance] = (final_text + event.stable, final_text + event.stable + event.tail)
            case events.Segment():
                final_text = self._ended[event.utterance] = self._ended.get(event.utterance, "") + event.text
                before = self._open.get(event.utterance, ("", ""))
                # Text shown after the segment stays until the next interim replaces it.
                stable, shown = (text if text.startswith(final_text) else final_text for text in before)
                self._open[event.utterance] = (stable, shown)
            case events.Utterance():
                self._ended[event.utterance] = event.text
                self._open[event.utterance] = (event.text, event.text)
            case _:
                return
        stable, shown = (
            " ".join(texts) for texts in zip(*(each for _, each in sorted(self._open.items())), strict=True)
        )
        self.seen.append(Caption(at_s, shown, stable))

    @property
    def text(self) -> str:
        """The final text of all utterances."""
        return " ".join(text for _, text in sorted(self._ended.items()))


class _Observer:
    """Builds captions of the events of a session, and counts its windows."""

    def __init__(self, captions: CaptionBuilder, found: PolicyResult) -> None:
        self._captions = captions
        self._found = found

    def on_event(self, at_s: float, event: events.Event) -> None:
        """See `Observer`."""
        self._captions.apply(at_s, event)

    def on_window(self, window: api.Window, answers: list[api.EngineEvent], took_s: float) -> None:
        """See `Observer`."""
        self._found.n_hypotheses += 1


async def run_session(engine: Transcriber, recording: Recording, config: SessionConfig) -> PolicyResult:
    """Run one session in which the engine answers every window at once."""
    captions, found = CaptionBuilder(), PolicyResult()
    observer = _Observer(captions, found)
    await run_in_audio_time(Session("bench", engine.info, config), START, engine, recording.samples, observer)
    found.latencies = measure_words(captions.seen, spoken_words(recording.utterances), 0.0)
    found.errors = word_errors(recording.text, captions.text)
    return found


async def compare(
    recordings: list[Recording],
    policies: dict[str, MakePolicy],
    interval_ms: int,
    model: str,
    context: AudioContext = "auto",
) -> list[dict[str, Any]]:
    """Run the same recordings under each policy and return one row of figures for each."""
    from engine.engine import Engine

    rows = []
    config = EngineConfig(model=model, device="cpu", audio_context=context, max_wait_ms=0, n_threads=2)
    async with Engine.start(config) as engine:
        for name, make_policy in policies.items():
            session_config = SessionConfig(interim_interval_ms=interval_ms, make_policy=make_policy)
            total = PolicyResult()
            for found in [await run_session(engine, recording, session_config) for recording in recordings]:
                total.latencies.add(found.latencies)
                total.errors += found.errors
                total.n_hypotheses += found.n_hypotheses
            audio_s = sum(each.audio_s for each in recordings)
            rows.append(row(name, total, audio_s, context))
    return rows


def copy_as_untrained(model: str, folder: Path) -> str:
    """Copy a checkpoint into `folder` without the note that it was trained on short windows, and return its path.

    Raises:
        CheckpointError: there is no such model.
    """
    copy = folder / "untrained"
    shutil.copytree(find_checkpoint(model), copy, copy_function=os.symlink)
    file = copy / "generation_config.json"
    config = json.loads(file.read_text())
    config.pop("tutti_audio_context", None)
    file.unlink()
    file.write_text(json.dumps(config))
    return str(copy)


def row(name: str, found: PolicyResult, audio_s: float, context: AudioContext = "auto") -> dict[str, Any]:
    """The figures of one policy, as the result file holds them."""
    return {
        "policy": name,
        "audio_context": context,
        "audio_s": audio_s,
        "words": found.errors.words,
        "wer": found.errors.rate,
        "missing": found.errors.missing_rate,
        "word_shown_s": word_summary(found.latencies.shown_s),
        "word_stable_s": word_summary(found.latencies.stable_s),
        "revised_per_word": found.latencies.n_revised / found.errors.words,
        "taken_back": found.latencies.n_taken_back,
        "readings_per_s": found.n_hypotheses / audio_s,
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """The table: one row for each policy and audio context."""
    heading = (
        "policy",
        "context",
        "stable p50/p95 s",
        "shown p50/p95 s",
        "WER %",
        "missing %",
        "revised %",
        "hypotheses\nper s",
    )
    return Table(
        "Stable text, in audio time",
        heading,
        [
            (
                row["policy"],
                row["audio_context"],
                _both(row["word_stable_s"]),
                _both(row["word_shown_s"]),
                percent(row["wer"]),
                percent(row["missing"]),
                percent(row["revised_per_word"]),
                number(row["readings_per_s"]),
            )
            for row in rows
        ],
    )


def _both(seconds: dict[str, Any]) -> str:
    return f"{number(seconds['p50'])}/{number(seconds['p95'])}"


@click.command(context_settings=CONTEXT_SETTINGS)
@audio_option
@kind_option
@match_option
@click.option("--seconds", default=60.0, show_default=True, help="Length of a recording, in seconds.")
@click.option("--recordings", "n_recordings", default=8, show_default=True, help="Number of recordings.")
@click.option(
    "--distances",
    default="0.2,0.3,0.5",
    show_default=True,
    help="Distances from the end of the audio for the attention policy, in seconds.",
)
@click.option("--interval-ms", default=350, show_default=True, help="Least audio between two hypotheses, in ms.")
@click.option("--model", default="tutti-demo", show_default=True)
@click.option(
    "--audio-contexts",
    "contexts",
    default="auto",
    show_default=True,
    help="Values of --audio-context, separated by commas. If interims is among them, the model is treated as one that "
    "was trained on full windows only.",
)
@json_option("stability")
@markdown_option
def main(
    folder: Path | None,
    kind: str,
    match: str,
    seconds: float,
    n_recordings: int,
    distances: str,
    interval_ms: int,
    model: str,
    contexts: str,
    path: Path,
    markdown: bool,
) -> None:
    """Compare the policies of `--stability` on the same recordings."""
    prepare_environment()
    recordings = load_recordings(folder, kind, match, seconds=seconds, n=n_recordings)
    recordings = [with_silence(each, TAIL_S) for each in recordings[:n_recordings]]
    policies: dict[str, MakePolicy] = {"agreement": Agreement}
    for distance in distances.split(","):
        policies[f"attention, {distance} s"] = partial(Attention, float(distance))
    chosen = contexts.split(",")
    if unknown := sorted(set(chosen) - set(get_args(AudioContext))):
        raise click.BadParameter(f"expected some of {', '.join(get_args(AudioContext))}, got {', '.join(unknown)}")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        taken = copy_as_untrained(model, Path(scratch)) if "interims" in chosen else model
        for context in cast(list[AudioContext], chosen):
            rows += asyncio.run(compare(recordings, policies, interval_ms, taken, context))
    result = {
        "benchmark": "stability",
        "schema": 2,
        **machine.describe(),
        "audio": str(folder or "bundled"),
        "rows": rows,
    }
    report.show([table(rows)], result, as_markdown=markdown, path=path)


if __name__ == "__main__":
    main()
