"""How good is live text while it is spoken, beside the text of files?

    python -m benchmarks.stability --model FOLDER --policies agreement,none --markdown

Sessions run in audio time: the engine answers every window before the next sample arrives. So the session and the model
are measured, and not the speed of the machine. The same engine transcribes the same clips as files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast, get_args

import click

from benchmarks import machine, report
from benchmarks.files.clip_scores import (
    N_RESAMPLES,
    clip_errors,
    groups,
    invented,
    paired_difference,
    score,
)
from benchmarks.files.labelled_clips import Clip, choose_clips
from benchmarks.files.speech_tables import errors_table
from benchmarks.files.systems import ChannelResult, ClipResult
from benchmarks.live.live_text import ReaderFigures
from benchmarks.live.text_runs import (
    FILES,
    LIVE_POLICIES,
    N_SLOTS,
    ClipResults,
    Mode,
    Setup,
    run_in_processes,
)
from benchmarks.options import benchmark_command, kinds_option, manifest_option, parse_numbers, result_options
from benchmarks.report import NO_VALUE, Table, number, percent
from benchmarks.scoring import WordErrors, percentile, word_summary
from tutti_server.app.session.messages import commands
from tutti_server.engine.config import AudioContext, Device, Dtype, EngineConfig
from tutti_server.engine.process_environment import prepare_environment


@benchmark_command(needs=("transformers",))
@click.option(
    "--model", default="tutti-base", show_default=True, help="A folder, or a model that `tutti models` lists."
)
@manifest_option
@kinds_option
@click.option("--device", type=click.Choice(get_args(Device)), default="auto", show_default=True)
@click.option("--dtype", type=click.Choice(get_args(Dtype)), default="auto", show_default=True)
@click.option(
    "--audio-context", type=click.Choice(get_args(AudioContext)), default="auto", show_default=True, help="Of interims."
)
@click.option(
    "--policies",
    default="agreement,none",
    show_default=True,
    help=f"When words become stable, in this order: {', '.join(LIVE_POLICIES)} (no interims at all).",
)
@click.option("--beams", default="1,5", show_default=True, help="Beams of live finals and of files, in this order.")
@click.option(
    "--endpointing",
    type=click.Choice(["auto", "vad", "adaptive"]),
    default="auto",
    show_default=True,
    help="When utterances end. auto: as for a client that leaves it to the service.",
)
@click.option(
    "--silence-ms", type=click.IntRange(100, 5000), help="The silence that ends an utterance; only with a mode."
)
@click.option(
    "--processes",
    "n_processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes, each with an engine of its own and a share of the clips.",
)
@result_options("stability")
def main(
    model: str,
    manifest: Path | None,
    kinds: str,
    device: str,
    dtype: str,
    audio_context: str,
    policies: str,
    beams: str,
    endpointing: str,
    silence_ms: int | None,
    n_processes: int,
    path: Path,
    markdown: bool,
) -> None:
    """Compare live text with the text of files: errors, changes, first words, delays of words, and invented words."""
    prepare_environment()
    modes = parse_modes(policies, beams)
    clips = choose_clips(manifest, kinds)
    engine = EngineConfig(
        model=model,
        device=cast(Device, device),
        dtype=cast(Dtype, dtype),
        audio_context=cast(AudioContext, audio_context),
        max_wait_ms=0,
        n_slots=N_SLOTS,
    )
    described = machine.describe()
    setup = Setup(engine=engine, endpointing=parse_endpointing(endpointing, silence_ms), modes=modes)
    found = run_in_processes(setup, clips, n_processes)
    result = {**described, "model": Path(model).name, "n_resamples": N_RESAMPLES, **compare(modes, clips, found)}
    report.show([live_table(result), errors_table(result)], result, as_markdown=markdown, path=path)


def parse_modes(policies: str, beams: str) -> tuple[Mode, ...]:
    """The rows of the tables: each policy with each number of beams, then files."""
    names, widths = policies.split(","), parse_numbers("--beams", beams)
    if unknown := [name for name in names if name not in LIVE_POLICIES]:
        raise click.BadParameter(
            f"expected some of {', '.join(LIVE_POLICIES)}, got {', '.join(unknown)}", param_hint="--policies"
        )
    if max(widths) > N_SLOTS:
        raise click.BadParameter(f"expected at most {N_SLOTS}, got {max(widths)}", param_hint="--beams")
    return tuple(Mode(name, width) for name in (*names, FILES) for width in widths)


def parse_endpointing(mode: str, silence_ms: int | None) -> commands.Endpointing:
    if mode == "auto":
        if silence_ms is not None:
            raise click.BadParameter("expected --endpointing vad or adaptive with it", param_hint="--silence-ms")
        return commands.Endpointing(mode=None)
    chosen = commands.Endpointing(mode=cast(commands.EndpointingMode, mode))
    return chosen if silence_ms is None else replace(chosen, silence_ms=silence_ms)


def compare(modes: Sequence[Mode], clips: Sequence[Clip], found: Mapping[str, ClipResults]) -> dict[str, Any]:
    """Score all modes: the second half of the result. Its systems have the keys of `benchmarks.real_speech`."""
    written = {
        mode: [ClipResult(clip, tuple(map(ChannelResult, found[clip.name][mode].texts))) for clip in clips]
        for mode in modes
    }
    errors = {
        mode: {each.clip.name: clip_errors(each) for each in results if each.clip.has_speech}
        for mode, results in written.items()
    }
    return {
        "clips": [{"name": clip.name, "kind": clip.kind, "texts": clip.texts} for clip in clips],
        "systems": {
            mode.title: {
                **asdict(mode),
                "title": mode.title,
                "state": "measured",
                "total": score([clip for clip in clips if clip.has_speech], errors[mode]).to_json(),
                "minus_files": _minus_files(mode, errors) if mode.is_live else None,
                "kinds": {name: score(members, errors[mode]).to_json() for name, members in groups(clips)},
                "invented": asdict(invented(written[mode])),
                "reader": _reader(mode, clips, found) if mode.is_live else None,
                "texts": {each.clip.name: [channel.text for channel in each.channels] for each in written[mode]},
            }
            for mode in modes
        },
    }


def reader_figures(figures: ReaderFigures) -> dict[str, Any]:
    first_s = figures.first_right_s
    return {
        "changed_per_word": figures.n_changed / figures.n_words if figures.n_words else None,
        "flashed": figures.n_flashed / figures.n_utterances if figures.n_utterances else None,
        "first_right_s": {
            "mean": sum(first_s) / len(first_s) if first_s else None,
            "p50": percentile(first_s, 50),
        },
        "ended_s": {"p50": percentile(figures.ended_s, 50), "p95": percentile(figures.ended_s, 95)},
        "word_shown_s": word_summary(figures.shown_s),
        "word_stable_s": word_summary(figures.stable_s),
    }


def live_table(result: dict[str, Any]) -> Table:
    """The figures over all clips: one row for each policy and for files, with each number of beams."""
    heading = (
        *("", "words", "errors %", "minus files,\npoints", "changed per\n100 words", "flashed %"),
        *(
            "first right word,\nmean/p50 s",
            "final after its end,\np50/p95 s",
            "shown\np50/p95 s",
            "stable\np50/p95 s",
        ),
        "words\ninvented",
    )
    return Table(
        f"Live text in audio time, {result['model']} (95 % of {result['n_resamples']:,} resamples of clips)",
        heading,
        [
            (
                each["title"],
                str(each["total"]["words"]["words"]),
                percent(each["total"]["wer"]),
                _points(each["minus_files"]),
                *_reader_cells(each["reader"]),
                str(each["invented"]["n_words"]) if each["invented"]["files"] else NO_VALUE,
            )
            for each in result["systems"].values()
        ],
    )


def _minus_files(mode: Mode, errors: Mapping[Mode, Mapping[str, WordErrors]]) -> dict[str, Any] | None:
    ours, theirs = errors[mode], errors[Mode(FILES, mode.beams)]
    difference = paired_difference(list(ours.values()), [theirs[name] for name in ours])
    return asdict(difference) if difference else None


def _reader(mode: Mode, clips: Sequence[Clip], found: Mapping[str, ClipResults]) -> dict[str, Any]:
    total = ReaderFigures()
    for clip in clips:
        if clip.has_speech:
            total.add(found[clip.name][mode].figures)
    return reader_figures(total)


def _reader_cells(reader: dict[str, Any] | None) -> tuple[str, ...]:
    if reader is None:
        return (NO_VALUE,) * 6
    return (
        percent(reader["changed_per_word"]),
        percent(reader["flashed"]),
        _side_by_side(reader["first_right_s"], "mean", "p50"),
        _side_by_side(reader["ended_s"], "p50", "p95"),
        _side_by_side(reader["word_shown_s"], "p50", "p95"),
        _side_by_side(reader["word_stable_s"], "p50", "p95"),
    )


def _points(difference: dict[str, float] | None) -> str:
    if difference is None:
        return NO_VALUE
    return f"{difference['points']:+.1f} ({difference['low']:+.1f} to {difference['high']:+.1f})"


def _side_by_side(values: dict[str, Any], *names: str) -> str:
    return "/".join(number(values[name]) for name in names)


if __name__ == "__main__":
    main()
