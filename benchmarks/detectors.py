"""Compares speech detectors: what they miss, what they take for speech, how late they are, and what they cost.

    python -m benchmarks.detectors --audio FOLDER

The folder has a `manifest.jsonl` with speech whose times are known. Clean human speech is also mixed with noise and
sent over a telephone line. Without a folder only the costs are measured, with the bundled clips.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from app.session.endpointing import FRAME_SAMPLES, SpeechDetector, WebRtcDetector
from app.speech import silero
from app.speech.detection_batcher import DetectionBatcher
from app.speech.silero import SileroDetector, SileroModel
from benchmarks import machine, report
from benchmarks.detection import labelled_audio, scores
from benchmarks.detection.labelled_audio import LabelledAudio
from benchmarks.detection.scores import SILENCE_MS, Scores, quantile
from benchmarks.options import CONTEXT_SETTINGS, json_option, markdown_option, parse_numbers
from benchmarks.recordings import load_bundled
from benchmarks.report import Table, number, percent
from engine.api import SAMPLE_RATE

SCHEMA = 1
PIECE_SAMPLES = SAMPLE_RATE // 10
"""The audio of a message when costs are measured: 100 ms."""
COST_S = 2.0
"""Seconds of audio of each session when costs are measured."""

MakeDetector = Callable[[], SpeechDetector]


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--audio", "folder", type=click.Path(path_type=Path), help="Folder with recordings and a manifest.jsonl.")
@click.option("--webrtc", default="0.5,0.75", show_default=True, help="Thresholds of the WebRTC detector.")
@click.option(
    "--silero", "of_silero", default="0.3,0.5,0.7", show_default=True, help="Thresholds of Silero's detector."
)
@click.option("--sessions", default="1,16,100,250", show_default=True, help="Sessions at once when costs are measured.")
@json_option("detectors")
@markdown_option
def main(folder: Path | None, webrtc: str, of_silero: str, sessions: str, path: Path, markdown: bool) -> None:
    """Compare the speech detectors of the server."""
    if not silero.is_installed():
        raise click.ClickException("silero: expected the packages of the extra silero: pip install 'tutti-asr[silero]'")
    model = SileroModel()
    detectors: dict[str, MakeDetector] = {
        **{f"webrtc {each:g}": partial(WebRtcDetector, each) for each in _thresholds("--webrtc", webrtc)},
        **{f"silero {each:g}": partial(SileroDetector, model, each) for each in _thresholds("--silero", of_silero)},
    }
    counts = parse_numbers("--sessions", sessions)
    result: dict[str, Any] = {"benchmark": "detectors", "schema": SCHEMA, **machine.describe()}
    result["costs"] = [measure_cost(model, count) for count in counts]
    result["kinds"] = compare(detectors, labelled_audio.load(folder)) if folder else {}
    tables = [quality_table(kind, found) for kind, found in result["kinds"].items()]
    report.show([*tables, cost_table(result["costs"])], result, as_markdown=markdown, path=path)


def compare(detectors: dict[str, MakeDetector], audio: Iterable[LabelledAudio]) -> dict[str, dict[str, dict[str, Any]]]:
    """The scores of each kind of audio and each detector."""
    kinds: dict[str, dict[str, Scores]] = {}
    for each in audio:
        of_kind = kinds.setdefault(each.kind, {name: Scores() for name in detectors})
        for name, make_detector in detectors.items():
            of_kind[name].add(each, *scores.find_utterances(make_detector(), each))
    return {kind: {name: _summary(found) for name, found in of_kind.items()} for kind, of_kind in kinds.items()}


def measure_cost(model: SileroModel, n_sessions: int) -> dict[str, Any]:
    """CPU milliseconds that a second of one session's audio costs, if this many sessions send pieces at once."""
    samples = load_bundled(20.0, 1)[0].samples
    ends = np.linspace(COST_S, len(samples) / SAMPLE_RATE, n_sessions)
    audio = [samples[round((end - COST_S) * SAMPLE_RATE) :][: round(COST_S * SAMPLE_RATE)] for end in ends]
    webrtc = [WebRtcDetector() for _ in audio]
    neural = [SileroDetector(model) for _ in audio]
    batcher = DetectionBatcher(model)

    def run_webrtc(at: int) -> None:
        _decide(webrtc, audio, at)

    def run_silero(at: int) -> None:
        pieces = [(detector, each[at : at + PIECE_SAMPLES]) for detector, each in zip(neural, audio, strict=True)]
        loop.run(batcher.detect(pieces))
        _decide(neural, audio, at)

    with asyncio.Runner() as loop:
        runs = {"webrtc_ms_per_s": run_webrtc, "silero_ms_per_s": run_silero}
        return {"n_sessions": n_sessions, **{name: _cpu_ms(run) / n_sessions / COST_S for name, run in runs.items()}}


def quality_table(kind: str, found: dict[str, dict[str, Any]]) -> Table:
    """One kind of audio: a row for each detector."""
    (audio_s,) = {each["audio_s"] for each in found.values()}
    return Table(
        f"{kind}, {audio_s / 60:.1f} min",
        (
            "",
            "speech\nmissed, %",
            "false speech,\ns/min",
            "false\nutterances",
            "split",
            "begin, s\np50/p95",
            "end, s\np50/p95",
        ),
        [
            (
                name,
                percent(each["missed"]),
                number(each["false_s_per_min"], 1),
                str(each["n_false"]),
                str(each["n_split"]),
                *("/".join(number(value) for value in each[delay]) for delay in ("onset_s", "end_s")),
            )
            for name, each in found.items()
        ],
    )


def cost_table(costs: Sequence[dict[str, Any]]) -> Table:
    """What a second of audio costs."""
    return Table(
        "CPU time for a second of one session's audio, ms",
        ("sessions at once", "webrtc", "silero"),
        [(str(c["n_sessions"]), number(c["webrtc_ms_per_s"]), number(c["silero_ms_per_s"])) for c in costs],
    )


def _summary(found: Scores) -> dict[str, Any]:
    return {
        "audio_s": round(found.audio_s, 3),
        "missed": found.missed_s / found.speech_s if found.speech_s else None,
        "unnoticed": found.n_unnoticed,
        "n_true": found.n_true,
        "false_s_per_min": 60 * found.false_s / found.silence_s if found.silence_s else None,
        "n_false": found.n_false,
        "n_split": found.n_split,
        "onset_s": [quantile(found.onset_s, q) for q in (0.5, 0.95)],
        "end_s": [quantile(found.end_s, q) for q in (0.5, 0.95)],
        "silence_ms": SILENCE_MS,
        "cpu_s": found.cpu_s,
    }


def _decide(detectors: Sequence[SpeechDetector], audio: Sequence[np.ndarray[Any, Any]], at: int) -> None:
    for detector, samples in zip(detectors, audio, strict=True):
        for begin in range(at, at + PIECE_SAMPLES, FRAME_SAMPLES):
            detector.is_speech(samples[begin : begin + FRAME_SAMPLES])


def _cpu_ms(run: Callable[[int], None]) -> float:
    """CPU milliseconds of all threads for the audio of all sessions, piece by piece."""
    started_s = time.process_time()
    for at in range(0, round(COST_S * SAMPLE_RATE), PIECE_SAMPLES):
        run(at)
    return 1000 * (time.process_time() - started_s)


def _thresholds(option: str, text: str) -> list[float]:
    try:
        values = [float(each) for each in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(0 < each < 1 for each in values):
        raise click.BadParameter(
            f"expected numbers above 0 and below 1 such as 0.3,0.5, got {text!r}", param_hint=option
        )
    return values


if __name__ == "__main__":
    main()
