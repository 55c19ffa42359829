"""Which policy makes text stable soonest and best: live sessions in audio time, with an engine that takes no time.

    python -m benchmarks.stability --audio FOLDER
    python -m benchmarks.stability --audio FOLDER --audio-contexts full,interims

Every reading is answered before the next sample comes, so that what is measured is the policy alone, whatever else
the machine does: the same run gives the same figures.
"""

import asyncio
import json
import os
import shutil
import tempfile
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import click

from app.media.pcm import AudioFormat
from app.session import commands, events
from app.session.effects import Effect, Send, Submit
from app.session.session import Session, SessionConfig
from app.session.stabilizer import Agreement, Attention, MakePolicy
from benchmarks import machine, report
from benchmarks.live.captions import Caption, WordDelays, measure_words, spoken_words
from benchmarks.recordings import Recording, cut, load_bundled, load_folder, with_silence
from benchmarks.report import Table, number, percent
from benchmarks.scoring import WordErrors, word_errors, word_summary
from engine.api import SAMPLE_RATE, Transcriber
from engine.checkpoint.checkpoint import find_checkpoint
from engine.config import AudioContext, EngineConfig
from engine.process_environment import limit_openmp_spinning

CHUNK_SAMPLES = SAMPLE_RATE // 10
TAIL_S = 2.0
START = commands.Start(audio=AudioFormat("pcm_f32le"), language="en")


@dataclass(slots=True)
class Found:
    """What a policy did. Seconds of audio."""

    delays: WordDelays = field(default_factory=WordDelays)
    errors: WordErrors = field(default_factory=WordErrors)
    n_readings: int = 0


class Captions:
    """The text of a session as its events make it grow."""

    def __init__(self) -> None:
        self.seen: list[Caption] = []
        self._ended: dict[int, str] = {}
        self._open: dict[int, tuple[str, str]] = {}
        """Segments so far, and what an interim shows behind them: what is stable of it, and all."""

    def take(self, at_s: float, event: events.Event) -> None:
        match event:
            case events.Interim():
                said = self._ended.get(event.utterance, "")
                self._open[event.utterance] = (said + event.stable, said + event.stable + event.tail)
            case events.Segment():
                said = self._ended[event.utterance] = self._ended.get(event.utterance, "") + event.text
                before = self._open.get(event.utterance, ("", ""))
                # What was shown behind it stays there until a reader is told otherwise.
                stable, shown = (text if text.startswith(said) else said for text in before)
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
        return " ".join(text for _, text in sorted(self._ended.items()))


async def listen(engine: Transcriber, recording: Recording, config: SessionConfig) -> Found:
    """One session, whose readings are answered at once."""
    session, captions, found = Session("bench", engine.info, config), Captions(), Found()
    waiting: deque[Effect] = deque(session.receive(START))

    async def perform() -> None:
        while waiting:
            match waiting.popleft():
                case Send(event):
                    captions.take(session.now_s, event)
                case Submit(job, window):
                    found.n_readings += 1
                    async with engine.submit(window) as answers:
                        async for answer in answers:
                            waiting.extend(session.engine_event(job, answer))
                case _:
                    pass

    samples = recording.samples.astype("<f4")
    for at in range(0, len(samples), CHUNK_SAMPLES):
        waiting.extend(session.receive(commands.Audio(samples[at : at + CHUNK_SAMPLES].tobytes())))
        await perform()
    waiting.extend(session.receive(commands.Stop()))
    await perform()
    found.delays = measure_words(captions.seen, spoken_words(recording.said), 0.0)
    found.errors = word_errors(recording.text, captions.text)
    return found


async def compare(
    recordings: list[Recording],
    policies: dict[str, MakePolicy],
    interval_ms: int,
    model: str,
    context: AudioContext = "auto",
) -> list[dict[str, Any]]:
    """The same recordings under each policy, side by side."""
    from engine.engine import Engine

    rows = []
    config = EngineConfig(model=model, device="cpu", audio_context=context, max_wait_ms=0, n_threads=2)
    async with Engine.start(config) as engine:
        for name, make_policy in policies.items():
            session_config = SessionConfig(interim_interval_ms=interval_ms, make_policy=make_policy)
            total = Found()
            for found in [await listen(engine, recording, session_config) for recording in recordings]:
                total.delays.add(found.delays)
                total.errors += found.errors
                total.n_readings += found.n_readings
            audio_s = sum(each.audio_s for each in recordings)
            rows.append(row(name, total, audio_s, context))
    return rows


def taken_for_untrained(model: str, folder: Path) -> str:
    """A checkpoint of the same weights that does not say it was trained on short windows, made in `folder`.

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


def row(name: str, found: Found, audio_s: float, context: AudioContext = "auto") -> dict[str, Any]:
    return {
        "policy": name,
        "audio_context": context,
        "audio_s": audio_s,
        "words": found.errors.words,
        "wer": found.errors.rate,
        "missing": found.errors.missing_rate,
        "word_shown_s": word_summary(found.delays.shown_s),
        "word_stable_s": word_summary(found.delays.stable_s),
        "revised_per_word": found.delays.n_revised / found.errors.words,
        "taken_back": found.delays.n_taken_back,
        "readings_per_s": found.n_readings / audio_s,
    }


def table(rows: list[dict[str, Any]]) -> Table:
    heading = (
        "policy",
        "context",
        "stable p50/p95 s",
        "shown p50/p95 s",
        "WER %",
        "missing %",
        "revised %",
        "readings per s",
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


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--audio", "folder", type=click.Path(path_type=Path), help="Folder with a manifest.jsonl.")
@click.option("--kind", default="synth-dialogue", show_default=True, help="Lines of the manifest to use.")
@click.option("--match", default="", help="Use only files with this in their name.")
@click.option("--seconds", default=60.0, show_default=True, help="Length of a recording.")
@click.option("--recordings", "most", default=8, show_default=True, help="How many.")
@click.option(
    "--distances",
    default="0.2,0.3,0.5",
    show_default=True,
    help="Distances from the end of the audio, in seconds, for the attention policy.",
)
@click.option("--interval-ms", default=350, show_default=True, help="Least audio between two readings.")
@click.option("--model", default="tutti-demo", show_default=True)
@click.option(
    "--audio-contexts",
    "contexts",
    default="auto",
    show_default=True,
    help="Settings of --audio-context, separated by commas. With interims among them the model is taken for one that "
    "was trained on full windows.",
)
@click.option(
    "--json", "path", type=click.Path(path_type=Path), default=Path("build/bench/stability.json"), show_default=True
)
@click.option("--markdown", is_flag=True, help="Print the table in Markdown.")
def main(
    folder: Path | None,
    kind: str,
    match: str,
    seconds: float,
    most: int,
    distances: str,
    interval_ms: int,
    model: str,
    contexts: str,
    path: Path,
    markdown: bool,
) -> None:
    """Compare the policies of `--stability` on the same recordings."""
    limit_openmp_spinning()
    if folder:
        recordings = [piece for each in load_folder(folder, kind, match) for piece in cut(each, seconds)]
    else:
        recordings = load_bundled(seconds, most)
    recordings = [with_silence(each, TAIL_S) for each in recordings[:most]]
    policies: dict[str, MakePolicy] = {"agreement": Agreement}
    for distance in distances.split(","):
        policies[f"attention, {distance} s"] = partial(Attention, float(distance))
    chosen = contexts.split(",")
    if unknown := sorted(set(chosen) - set(get_args(AudioContext))):
        raise click.BadParameter(f"expected some of {', '.join(get_args(AudioContext))}, got {', '.join(unknown)}")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        taken = taken_for_untrained(model, Path(scratch)) if "interims" in chosen else model
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
