"""How many words of real speech are wrong, in files and live, beside faster-whisper and transformers on one checkpoint?

    python -m benchmarks.real_speech --model FOLDER --ct2 FOLDER --peer-python PYTHON --markdown

Systems take turns: each receives a few clips, then the next one, so that other work on the machine disturbs all of
them equally. Arguments after `--` go to `tutti serve`. The command exits with 1 when a clip or a system failed.
"""

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, report
from benchmarks.files.clip_scores import (
    ALL_HUMAN,
    ALL_SYNTHETIC,
    N_RESAMPLES,
    clip_errors,
    groups,
    invented,
    languages,
    paired_difference,
    score,
    start_differences,
)
from benchmarks.files.labelled_clips import Clip, by_telephone, choose_clips, in_versions
from benchmarks.files.speech_tables import tables
from benchmarks.files.systems import (
    DEFAULT_SYSTEMS,
    FORMS,
    ClipResult,
    RunningSystem,
    Setup,
    System,
    Unavailable,
    parse_system,
)
from benchmarks.options import (
    benchmark_command,
    kinds_option,
    manifest_option,
    missing_extra,
    result_options,
    serve_arguments_argument,
)
from benchmarks.peers.ctranslate2 import convert_for_ctranslate2
from benchmarks.scoring import WordErrors, percentile, summary
from tutti_server.engine.checkpoint.checkpoint import find_checkpoint, read_checkpoint


@dataclass(slots=True, kw_only=True)
class Turns:
    system: System
    results: list[ClipResult] = field(default_factory=list)
    cpu_s: float | None = 0.0
    """Processor time of its processes, while it had its turns."""
    wall_s: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    unavailable: str | None = None
    """Why it did not run."""


@benchmark_command(needs=("transformers",))
@click.option(
    "--model", default="tutti-base", show_default=True, help="A folder, or a model that `tutti models` lists."
)
@click.option("--ct2", help="Folder of the same weights for CTranslate2. Default: converted here.")
@manifest_option
@kinds_option
@click.option("--systems", default=",".join(DEFAULT_SYSTEMS), show_default=True, help=f"In this order: {FORMS}.")
@click.option("--peer-python", default=sys.executable, help="Python that has faster-whisper. Default: this one.")
@click.option(
    "--versions",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How often each clip is transcribed: as it is, then later, quieter or in a little noise.",
)
@click.option("--telephone", is_flag=True, help="Transcribe the clips as a telephone has them: 8 kHz in mu-law.")
@click.option("--detect", is_flag=True, help="Name no language, so that all systems detect it.")
@click.option("--hotwords", default="", help="Hotwords that tutti receives with every clip, separated by commas.")
@click.option("--threads", default=2, show_default=True, help="CPU threads of each system.")
@click.option("--streams", default=4, show_default=True, help="Live sessions at a time, and clips in a turn.")
@click.option("--pace", default=1.0, show_default=True, help="Speed of live audio, as a multiple of real time.")
@result_options("real_speech")
@serve_arguments_argument
def main(
    model: str,
    ct2: str | None,
    manifest: Path | None,
    kinds: str,
    systems: str,
    peer_python: str,
    versions: int,
    telephone: bool,
    detect: bool,
    hotwords: str,
    threads: int,
    streams: int,
    pace: float,
    path: Path,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Transcribe clips with each system in turn, and compare errors, invented words, times, languages and CPU time."""
    chosen = {name: parse_system(name) for name in systems.split(",")}
    clips = [each for clip in choose_clips(manifest, kinds) for each in in_versions(clip, versions)]
    clips = list(map(by_telephone, clips)) if telephone else clips
    clips = [replace(clip, is_detected=True) for clip in clips] if detect else clips
    checkpoint = str(find_checkpoint(model))
    result: dict[str, Any] = {
        **machine.describe(),
        "model": Path(model).name,
        "n_versions": versions,
        "telephone": telephone,
        "detect": detect,
        "hotwords": hotwords,
        "threads": threads,
        "streams": streams,
        "pace": pace,
        "serve_arguments": list(serve_arguments),
        "audio_s": sum(clip.audio_s for clip in clips),
        "n_resamples": N_RESAMPLES,
    }
    with tempfile.TemporaryDirectory(prefix="tutti-bench-") as scratch:
        setup = Setup(
            folder=checkpoint,
            ct2_folder=lambda: ct2 or _convert(checkpoint, Path(scratch)),
            scratch=Path(scratch),
            is_multilingual=read_checkpoint(checkpoint).generation.is_multilingual,
            peer_python=peer_python,
            n_threads=threads,
            n_streams=streams,
            pace=pace,
            hotwords=tuple(filter(None, hotwords.split(","))),
            serve_arguments=serve_arguments,
        )
        turns = asyncio.run(take_turns(chosen, setup, clips))
    result |= compare(turns, clips)
    result["versions"] |= {key: value for each in turns.values() for key, value in each.versions.items()}
    report.finish(tables(result), result, remarks(result), as_markdown=markdown, path=path)


async def take_turns(systems: Mapping[str, System], setup: Setup, clips: Sequence[Clip]) -> dict[str, Turns]:
    """Start all systems, and give each of them the same few clips in turn until all clips are done.

    The shortest clip goes to each system first, and is not measured: the first request pays for one-time costs.
    """
    turns = {name: Turns(system=system) for name, system in systems.items()}
    running: dict[str, RunningSystem] = {}
    blocks = in_blocks(clips, setup.n_streams)
    async with AsyncExitStack() as stack:
        for name, system in systems.items():
            try:
                running[name] = await stack.enter_async_context(system.open(setup))
            except Unavailable as error:
                turns[name].unavailable = str(error)
                continue
            turns[name].versions = running[name].versions
            await running[name].transcribe(blocks[-1][-1:])
        with click.progressbar(blocks, label="turns", file=sys.stderr) as shown:
            for i, block in enumerate(shown):
                names = list(running)
                # Each system is the first one as often as the others.
                for name in names[i % len(names) :] + names[: i % len(names)] if names else ():
                    await take_turn(turns[name], running[name], block)
    return turns


async def take_turn(turns: Turns, running: RunningSystem, block: Sequence[Clip]) -> None:
    """Give one system its clips, and add what it did to its turns."""
    before_s, started_at = machine.family_cpu_s(running.pid), time.monotonic()
    turns.results += await running.transcribe(block)
    turns.wall_s += time.monotonic() - started_at
    after_s = machine.family_cpu_s(running.pid)
    is_known = None not in (before_s, after_s, turns.cpu_s)
    turns.cpu_s = (turns.cpu_s or 0.0) + (after_s or 0.0) - (before_s or 0.0) if is_known else None


def in_blocks(clips: Sequence[Clip], n: int) -> list[tuple[Clip, ...]]:
    """Clips in groups of `n` of similar length, the longest first."""
    ordered = sorted(clips, key=lambda clip: -clip.audio_s)
    return [tuple(ordered[begin : begin + n]) for begin in range(0, len(ordered), n)]


def compare(turns: Mapping[str, Turns], clips: Sequence[Clip]) -> dict[str, Any]:
    """Score all systems, and compare ours with the others: the second half of the result."""
    measured = {name: each for name, each in turns.items() if each.unavailable is None}
    errors = {
        name: {found.clip.name: clip_errors(found) for found in each.results if found.clip.has_speech}
        for name, each in measured.items()
    }
    return {
        "clips": [
            {"name": clip.name, "kind": clip.kind, "language": clip.language, "audio_s": clip.audio_s}
            | {"texts": clip.texts}
            for clip in clips
        ],
        "systems": {
            name: system_result(each, clips, errors[name])
            if name in measured
            else {"title": each.system.title, "state": "unavailable", "reason": each.unavailable}
            for name, each in turns.items()
        },
        "differences": differences(measured, clips, errors),
        "word_starts": word_starts(measured),
    }


def system_result(turns: Turns, clips: Sequence[Clip], errors: Mapping[str, WordErrors]) -> dict[str, Any]:
    return {
        "title": turns.system.title,
        "state": "measured",
        "cpu_s": turns.cpu_s,
        "wall_s": turns.wall_s,
        "n_interims": sum(each.n_interims for each in turns.results),
        "failures": {each.clip.name: each.failure for each in turns.results if each.failure},
        "kinds": {name: score(members, errors).to_json() for name, members in groups(clips)},
        "invented": invented(turns.results).to_json(),
        "languages": asdict(languages(turns.results)),
        "clips": {
            each.clip.name: {
                "channels": [asdict(channel) for channel in each.channels],
                "errors": asdict(errors[each.clip.name]) if each.clip.has_speech else None,
            }
            for each in turns.results
        },
    }


def differences(
    measured: Mapping[str, Turns], clips: Sequence[Clip], errors: Mapping[str, Mapping[str, WordErrors]]
) -> list[dict[str, Any]]:
    """Each of ours beside each peer, and live beside files, over the sums of kinds, without systems that time words."""
    found = []
    for group, members in groups(clips):
        if group not in (ALL_HUMAN, ALL_SYNTHETIC):
            continue
        for ours, theirs in _pairs(measured, has_words=False):
            # All versions of a clip stay together in each resample: they are no further clips.
            both = [
                [
                    sum((errors[name][each.name] for each in versions), WordErrors())
                    for _, versions in itertools.groupby(members, lambda clip: clip.original or clip.name)
                ]
                for name in (ours, theirs)
            ]
            if difference := paired_difference(*both):
                found.append({"group": group, "ours": ours, "theirs": theirs, **asdict(difference)})
    return found


def word_starts(measured: Mapping[str, Turns]) -> list[dict[str, Any]]:
    """How far the starts of equal words are apart, for each of ours beside each other system that times words."""
    found = []
    for ours, theirs in _pairs(measured, has_words=True):
        by_name = {each.clip.name: each for each in measured[theirs].results}
        apart_s = [
            apart
            for each in measured[ours].results
            for a, b in zip(each.channels, by_name[each.clip.name].channels, strict=True)
            for apart in start_differences(a.words, b.words)
        ]
        figures = {**summary([abs(each) for each in apart_s]), "signed_p50": percentile(apart_s, 50)}
        found.append({"ours": ours, "theirs": theirs, **figures})
    return found


def remarks(result: dict[str, Any]) -> list[str]:
    """Remarks below the tables: systems that did not run, and clips that failed."""
    found = []
    for each in result["systems"].values():
        if each["state"] == "measured":
            found += [f"{each['title']}: {name}: {failure}" for name, failure in each["failures"].items()]
        else:
            found.append(f"{each['title']} was left out: {each['reason']}")
    return found


def _pairs(measured: Mapping[str, Turns], *, has_words: bool) -> list[tuple[str, str]]:
    """The names of the systems that are compared: ours with each peer, and ours live with ours for files."""
    systems = {name: each.system for name, each in measured.items() if each.system.has_words == has_words}
    return [
        (ours, theirs)
        for ours, theirs in itertools.permutations(systems, 2)
        if systems[ours].is_ours
        and (not systems[theirs].is_ours or (systems[ours].is_live and not systems[theirs].is_live))
    ]


def _convert(checkpoint: str, scratch: Path) -> str:
    target = scratch / "ct2"
    if target.is_dir():
        return str(target)
    try:
        return convert_for_ctranslate2(checkpoint, target)
    except ImportError as error:
        raise Unavailable(f"no --ct2, and {missing_extra('ctranslate2').message}") from error
    except (OSError, ValueError) as error:
        raise Unavailable(f"no --ct2, and {checkpoint} cannot be converted: {error}") from error


if __name__ == "__main__":
    main()
