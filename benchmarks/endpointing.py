"""Measures when utterances end: the silence waited against the utterances that were split, fixed and adaptive.

    python -m benchmarks.endpointing --audio FOLDER --kinds human-long --plot build/bench/endpointing.png
    python -m benchmarks.endpointing --audio FOLDER --kinds human-long --fit

It runs in audio time, with an engine that takes no time or as long as `--answer-ms` says: a repeated run gives the same
figures, whatever else the machine does. Use recordings with a known end of every utterance. For `--fit` the pauses
inside utterances must be known too; use other recordings for the table than for the fit.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from app.session.commands import Endpointing
from app.session.turn_taking import PauseEvidence, TurnModel
from benchmarks import machine, plot, report
from benchmarks.options import CONTEXT_SETTINGS, json_option, markdown_option, parse_numbers, plot_option
from benchmarks.pauses.counting import KIND_OF_CLIP, KINDS, Count, label, with_truth
from benchmarks.pauses.fitting import fit
from benchmarks.pauses.simulation import Answers, Outcome, Policy, find_voiced, simulate
from benchmarks.recordings import Recording, load_folder, with_silence
from benchmarks.report import Table, number
from benchmarks.scoring import summary
from engine.api import SAMPLE_RATE, Transcriber
from engine.config import EngineConfig
from engine.process_environment import prepare_environment

FIXED_MS = "200,300,400,500,600,700,800,1000,1200,1500"
THRESHOLDS = "20,30,40,50,60,70,80,90"
"""Values of `end_confidence`, in percent, that make the adaptive curve."""
TAIL_S = 2.0
"""Seconds of silence after each recording, so that its last utterance ends: longer than any policy waits."""


@dataclass(frozen=True, slots=True)
class LoadedRecording:
    """A recording with its truth, and what the detector decides of it."""

    recording: Recording
    kind: str
    are_voiced: list[bool]


def load(folder: Path, kinds: Iterable[str], match: str) -> list[LoadedRecording]:
    """The recordings of these kinds, with silence after them.

    Raises:
        ClickException: as `load_folder`.
    """
    found = []
    for kind in kinds:
        for each in load_folder(folder, kind, match):
            recording = with_silence(with_truth(each, kind), TAIL_S)
            found.append(LoadedRecording(recording, kind, find_voiced(recording.samples)))
    return found


def policies(fixed_ms: Sequence[int], thresholds: Sequence[int]) -> list[Policy]:
    """The policies to compare."""
    fixed = [Policy(f"fixed {ms} ms", Endpointing(silence_ms=ms)) for ms in fixed_ms]
    model = TurnModel()
    adaptive = [
        Policy(f"adaptive {percent / 100:g}", Endpointing(mode="adaptive", end_confidence=percent / 100), model)
        for percent in thresholds
    ]
    return fixed + adaptive


async def measure(
    loaded: Sequence[LoadedRecording], policy: Policy, answers: Answers, answer_ms: int
) -> tuple[Count, list[Outcome]]:
    """Run a policy over all recordings, and count."""
    count, outcomes = Count(), []
    for each in loaded:
        samples, answer_samples = each.recording.samples, answer_ms * SAMPLE_RATE // 1000
        outcome = await simulate(samples, each.are_voiced, policy, answers, answer_samples)
        count.add(each.recording.utterances, outcome.ends, KIND_OF_CLIP.get(each.kind, "sentence"))
        outcomes.append(outcome)
    return count, outcomes


async def collect(loaded: Sequence[LoadedRecording], answers: Answers) -> list[tuple[str, PauseEvidence]]:
    """What the engine says at every pause of which the truth says what it is, and this truth.

    No utterance is split meanwhile: its silence is the longest.
    """
    longest = Policy("", Endpointing(silence_ms=Endpointing().max_silence_ms), asks=True)
    _, outcomes = await measure(loaded, longest, answers, 0)
    found = []
    for each, outcome in zip(loaded, outcomes, strict=True):
        labelled = [(label(each.recording.utterances, pause), pause.evidence) for pause in outcome.pauses]
        found += [(name, evidence) for name, evidence in labelled if name is not None]
    return found


def row(policy: Policy, count: Count, kind: str) -> dict[str, Any]:
    """The figures of one policy over the recordings of one kind, as the result file holds them."""
    return {
        "kind": kind,
        "policy": policy.title,
        "is_adaptive": policy.model is not None,
        "waited_s": summary(count.waited_s) | {"mean": sum(count.waited_s) / max(len(count.waited_s), 1)},
        "late_s": summary(count.late_s),
        "pauses": {name: count.pauses[name] for name in KINDS},
        "splits": {name: count.splits[name] for name in KINDS},
        "split_utterances": {name: count.split_utterances[name] for name in KINDS},
        "utterances": count.n_utterances,
        "joined": count.n_joined,
    }


def table(rows: Sequence[dict[str, Any]], kind: str) -> Table:
    """The table of one kind: one row for each policy."""
    rows = [each for each in rows if each["kind"] == kind]
    pauses = ", ".join(f"{n} pauses in a {name}" for name, n in rows[0]["pauses"].items() if n)
    return Table(
        f"{kind}: {rows[0]['utterances']} utterances, {pauses or 'no pauses in them'}",
        (
            "policy",
            "waited\np50 s",
            "waited\nmean s",
            "waited\np95 s",
            "after speech\np50 s",
            "split:\nsentences",
            "split:\nnumbers",
            "split:\nspellings",
            "joined",
        ),
        [
            (
                each["policy"],
                *(number(each["waited_s"][name]) for name in ("p50", "mean", "p95")),
                number(each["late_s"]["p50"]),
                *(str(each["splits"][name]) for name in KINDS),
                str(each["joined"]),
            )
            for each in rows
        ],
    )


async def run(
    loaded: Sequence[LoadedRecording], engine: Transcriber, answers: Answers, chosen: Sequence[Policy], answer_ms: int
) -> list[dict[str, Any]]:
    """One row for each policy and kind."""
    kinds = list(dict.fromkeys(each.kind for each in loaded))
    rows = []
    for kind in kinds:
        some = [each for each in loaded if each.kind == kind]
        for policy in chosen:
            count, _ = await measure(some, policy, answers, answer_ms)
            rows.append(row(policy, count, kind))
            answers.save()
    return rows


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--audio", "folder", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
@click.option("--kinds", default="human-long", show_default=True, help="Kinds of the manifest's recordings to use.")
@click.option("--match", default="", help="Use only recordings whose file name contains this.")
@click.option("--fixed-ms", default=FIXED_MS, show_default=True, help="Fixed silences to compare with.")
@click.option("--thresholds", default=THRESHOLDS, show_default=True, help="Values of end_confidence, in percent.")
@click.option("--answer-ms", default=0, show_default=True, help="How long the engine takes for an answer.")
@click.option("--model", default="tutti-base", show_default=True)
@click.option("--language", default="en", show_default=True)
@click.option(
    "--answers",
    "answers_file",
    type=click.Path(path_type=Path),
    default=Path("build/bench/endpointing-answers.json"),
    show_default=True,
    help="File with what the engine has answered in earlier runs. Delete it after a change of the engine.",
)
@click.option("--fit", "fits", is_flag=True, help="Fit the weights of app/session/turn_taking.py, and print them.")
@json_option("endpointing")
@markdown_option
@plot_option
def main(
    folder: Path,
    kinds: str,
    match: str,
    fixed_ms: str,
    thresholds: str,
    answer_ms: int,
    model: str,
    language: str,
    answers_file: Path,
    fits: bool,
    path: Path,
    markdown: bool,
    picture: Path | None,
) -> None:
    """Measure the silence waited and the utterances split, by fixed and by adaptive endpointing."""
    chosen = policies(parse_numbers("--fixed-ms", fixed_ms), parse_numbers("--thresholds", thresholds))
    if picture:
        plot.check_path(picture)
    prepare_environment()
    loaded = load(folder, kinds.split(","), match)

    async def start() -> list[dict[str, Any]] | dict[str, float]:
        from engine.engine import Engine

        config = EngineConfig(model=model, device="cpu", max_wait_ms=0)
        async with Engine.start(config) as engine:
            answers = Answers(engine, answers_file, language)
            try:
                if fits:
                    return fit(await collect(loaded, answers))
                return await run(loaded, engine, answers, chosen, answer_ms)
            finally:
                answers.save()

    found = asyncio.run(start())
    if isinstance(found, dict):
        for name, weight in found.items():
            print(f'    "{name}": {weight:.2f},')
        return
    result = {
        "benchmark": "endpointing",
        "schema": 1,
        **machine.describe(),
        "audio": str(folder),
        "answer_ms": answer_ms,
        "model": model,
        "rows": found,
    }
    tables = [table(found, kind) for kind in dict.fromkeys(each["kind"] for each in found)]
    report.show(tables, result, as_markdown=markdown, path=path)
    if picture:
        plot.draw([result], picture)


if __name__ == "__main__":
    main()
