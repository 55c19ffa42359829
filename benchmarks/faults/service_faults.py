"""Streams speech through a service whose network and processes fail, and compares every word with an undisturbed run.

    python -m benchmarks.faults service --cuts 1000 --process-faults 200 -- --threads 1

Live sessions of the Python client, each with a network of its own, and uploads run while connections are reset, lose
bytes, go silent or stall, and while the engine, the gateways and the supervisor are killed, stopped, terminated, or get
few descriptors, little memory or a full disk. All faults come from a seed. Arguments after `--` go to `tutti serve`.

The command exits with 1 if words were lost or repeated, if text changed that was shown as stable, if an audio gap was
reported, or if a session failed.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, report
from benchmarks.faults.campaign import (
    CampaignLog,
    Faults,
    LocatedDifference,
    Plan,
    ServiceT,
    locate_differences,
    run_campaign,
    undisturbed,
    undisturbed_files,
)
from benchmarks.faults.differences import KINDS, TimedWord, differences
from benchmarks.faults.faults import NETWORK_FAULTS, PROCESS_FAULTS
from benchmarks.faults.service import disturbed_service
from benchmarks.files.labelled_clips import samples_to_wav
from benchmarks.options import benchmark_command, result_options, serve_arguments_argument
from benchmarks.recordings import load_bundled
from benchmarks.report import Table

N_GATEWAYS = 2
N_UPLOADS = 1
SERVE_ARGUMENTS = ("--final-deadline-s", "120", "--max-ahead-s", "3600")
"""Options of the service: a stopped engine must not end sessions, and audio may be faster than speech."""


@benchmark_command()
@click.option("--cuts", default=1000, show_default=True, help="How many times the network of a session is cut.")
@click.option("--process-faults", default=200, show_default=True, help="How many faults of processes there are.")
@click.option("--sessions", default=8, show_default=True, help="Live sessions at the same time.")
@click.option("--cut-every", "cut_every_s", default=8.0, show_default=True, help="Mean seconds between network faults.")
@click.option(
    "--process-fault-every",
    "process_fault_every_s",
    default=4.0,
    show_default=True,
    help="Mean seconds from a mended process fault to the next.",
)
@click.option("--seconds", default=40.0, show_default=True, help="The longest piece of a recording, in seconds.")
@click.option("--recordings", "n_recordings", default=16, show_default=True, help="How many different pieces.")
@click.option("--seed", default=0, show_default=True, help="Seed of all faults.")
@result_options("service_faults")
@serve_arguments_argument
def main(
    cuts: int,
    process_faults: int,
    sessions: int,
    cut_every_s: float,
    process_fault_every_s: float,
    seconds: float,
    n_recordings: int,
    seed: int,
    path: Path,
    markdown: bool,
    serve_arguments: tuple[str, ...],
) -> None:
    """Disturb a service, and compare every word with an undisturbed run."""
    pieces = load_bundled(seconds, n_recordings)
    with tempfile.TemporaryDirectory(prefix="tutti-faults-") as scratch:
        files = {each.name: Path(scratch) / f"{i}.wav" for i, each in enumerate(pieces)}
        for each in pieces:
            files[each.name].write_bytes(samples_to_wav(each.samples))
        plan = Plan(
            recordings=pieces,
            files=files,
            n_sessions=sessions,
            n_uploads=N_UPLOADS,
            n_cuts=cuts,
            n_process_faults=process_faults,
            cut_every_s=cut_every_s,
            process_fault_every_s=process_fault_every_s,
            seed=seed,
        )
        arguments = [*SERVE_ARGUMENTS, "--gateways", str(N_GATEWAYS), "--max-sessions", str(4 * sessions)]
        found = asyncio.run(run(plan, [*arguments, *serve_arguments], path.with_suffix(".log")))
        result = {**machine.describe(), **found}
    report.show(tables(result), result, as_markdown=markdown, path=path)
    if not result["holds"]:
        sys.exit(1)


async def run(plan: Plan, arguments: Sequence[str], service_log: Path) -> dict[str, Any]:
    """Run the campaign against a new service. Returns the figures."""
    async with disturbed_service(arguments, service_log) as service:
        return await compare(service, plan, PROCESS_FAULTS)


async def compare(service: ServiceT, plan: Plan, faults: Faults[ServiceT]) -> dict[str, Any]:
    """Run the campaign with these faults of processes, after two undisturbed runs. Returns the figures."""
    expected, again = await undisturbed(service.url, plan), await undisturbed(service.url, plan)
    expected_files = await undisturbed_files(service.url, plan)
    log = await run_campaign(service, plan, faults, print_progress)
    found = locate_differences(log, expected, plan.speed)
    return summarise(log, found, noise(expected, again), upload_differences(log, expected_files))


def noise(expected: dict[str, list[TimedWord]], again: dict[str, list[TimedWord]]) -> dict[str, Any]:
    """How far two undisturbed runs differ."""
    found = [each for name, words in expected.items() for each in differences(words, again[name])]
    return {"words": sum(map(len, expected.values())), **_count(found_kinds=[(d.kind, d.n_words) for d in found])}


def upload_differences(log: CampaignLog, expected: dict[str, list[TimedWord]]) -> dict[str, Any]:
    """What came of the uploads. One that a fault has ended fails with an error; the others must be whole."""
    done = [each for each in log.uploads if each.failure is None]
    different = [each.recording for each in done if differences(expected[each.recording], each.words)]
    failures = Counter(each.failure for each in log.uploads if each.failure)
    return {"done": len(done), "different": different, "failures": failures.most_common()}


def summarise(
    log: CampaignLog, found: Sequence[LocatedDifference], undisturbed_noise: dict[str, Any], uploads: dict[str, Any]
) -> dict[str, Any]:
    """The figures of a campaign, and whether the promises held."""
    sessions = [session for _, session in log.sessions]
    counts = _count([(each.difference.kind, each.difference.n_words) for each in found])
    failures = [{"recording": each.recording, "failure": each.failure} for each in sessions if each.failure]
    changed_stable = sum(len(each.changed_stable) for each in sessions)
    gaps = [gap for each in sessions for gap in each.gaps]
    repeated = sum(len(each.utterances) - len(set(each.utterances)) for each in sessions)
    holds = not (counts["lost"] or counts["repeated"] or failures or changed_stable or gaps or repeated)
    return {
        "holds": holds and not uploads["different"],
        "faults": dict(log.counts()),
        "n_cuts": log.n_cuts(),
        "n_process_faults": log.n_process_faults(),
        "sessions": len(sessions),
        "resumed": sum(each.n_resumed for each in sessions),
        "words": sum(len(each.words) for each in sessions),
        "differences": counts,
        "undisturbed": undisturbed_noise,
        "failures": failures,
        "changed_stable": changed_stable,
        "gaps": gaps,
        "repeated_utterances": repeated,
        "uploads": uploads,
        "located": [
            {"recording": each.recording, **asdict(each.difference), "faults": list(each.faults)} for each in found
        ],
    }


def _count(found_kinds: Sequence[tuple[str, int]]) -> dict[str, int]:
    return {kind: sum(n_words for each, n_words in found_kinds if each == kind) for kind in KINDS}


def tables(result: dict[str, Any]) -> list[Table]:
    faults = result["faults"]
    planned = [*NETWORK_FAULTS, *PROCESS_FAULTS]
    names = [*planned, *(name for name in faults if name not in planned)]
    happened = Table(
        f"Faults: {result['n_cuts']} cuts of a session's network, and {result['n_process_faults']} of processes",
        ("fault", "times"),
        [(name, str(faults[name])) for name in names if faults.get(name)],
    )
    undisturbed_run, disturbed = result["undisturbed"], result["differences"]
    came = Table(
        "Words, against an undisturbed run of the same build",
        ("", "second undisturbed run", "disturbed"),
        [
            ("words", str(undisturbed_run["words"]), str(result["words"])),
            *((kind, str(undisturbed_run[kind]), str(disturbed[kind])) for kind in KINDS),
            ("shown as stable, then changed", "", str(result["changed_stable"])),
            ("utterances ended twice", "", str(result["repeated_utterances"])),
            ("audio gaps", "", str(len(result["gaps"]))),
            ("sessions", "", str(result["sessions"])),
            ("sessions that failed", "", str(len(result["failures"]))),
            ("mended connections", "", str(result["resumed"])),
            ("uploads done", "", str(result["uploads"]["done"])),
            ("uploads done with other text", "", str(len(result["uploads"]["different"]))),
        ],
    )
    return [happened, came]


def print_progress(log: CampaignLog) -> None:
    failed = [session for _, session in log.sessions if session.failure is not None]
    line = f"{log.n_cuts()} cuts, {log.n_process_faults()} process faults, {len(log.sessions)} sessions"
    why = f", {len(failed)} failed, the last one of {failed[-1].recording}: {failed[-1].failure}" if failed else ""
    print(f"{line}{why}", file=sys.stderr, flush=True)
