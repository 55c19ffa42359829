"""Shows that a Ray cluster loses a node and no word: `make demo-cluster`.

    python -m benchmarks.faults cluster-demo

Starts three Ray nodes on this machine, each with an engine and a gateway (CPU, the embedded model), and streams eight
recordings through the Python SDK: once undisturbed, and once more while a node is killed. Then compares every word. It
needs the extra `ray`, and takes about two minutes and 4 GB of memory.
"""

import asyncio
import sys
import time
from collections import Counter

import click
from rich.console import Console

from benchmarks.faults.differences import KINDS, differences
from benchmarks.faults.ray_kills import campaign_settings
from benchmarks.faults.ray_service import RayService, ray_service
from benchmarks.faults.sessions import SessionLog, stream
from benchmarks.options import benchmark_command
from benchmarks.recordings import Recording, load_bundled
from tutti_server.app.cli.terminal import console

N_NODES = 3
N_RECORDINGS = 8
KILL_AFTER_S = 8.0
"""When the node is killed, in seconds after the first audio."""


@benchmark_command(needs=("ray",))
@click.option("--seconds", default=20.0, show_default=True, help="The length of each recording, in seconds.")
def main(seconds: float) -> None:
    """Kill a node of a Ray cluster while eight people speak, and compare every word."""
    recordings = load_bundled(seconds, N_RECORDINGS)
    try:
        is_whole = run(console(), recordings)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0 if is_whole else 1)


def run(out: Console, recordings: list[Recording]) -> bool:
    """Run the demo. Returns whether no word was lost or repeated."""
    out.print(f"Starting {N_NODES} Ray nodes on this machine, each with an engine and a gateway …")
    began = time.monotonic()
    with ray_service(campaign_settings(N_RECORDINGS), N_NODES) as service:
        out.print(f"  ready after {time.monotonic() - began:.0f} s: [bold]{service.url}/[/]\n")
        is_whole = asyncio.run(_show(out, service, recordings))
        out.print("\nStopping the cluster …")
    return is_whole


async def _show(out: Console, service: RayService, recordings: list[Recording]) -> bool:
    seconds = max(each.audio_s for each in recordings)
    out.print(f"Streaming {len(recordings)} recordings of up to {seconds:.0f} s at the pace of speech, undisturbed …")
    expected = await _stream_all(service, recordings)
    out.print(f"  {_n_words(expected)} words; the first recording:\n")
    out.print(f"  [dim]{' '.join(each.word for each in expected[0].words)}[/]\n", soft_wrap=True)
    out.print("Streaming them again …")
    received, _ = await asyncio.gather(_stream_all(service, recordings), _kill_a_node(out, service))
    return _compare(out, expected, received)


async def _stream_all(service: RayService, recordings: list[Recording]) -> list[SessionLog]:
    return await asyncio.gather(*(stream(service.url, each, speed=1.0, language="en") for each in recordings))


async def _kill_a_node(out: Console, service: RayService) -> None:
    await asyncio.sleep(KILL_AFTER_S)
    out.print(f"  after {KILL_AFTER_S:g} s: [bold]a node is killed[/], with its engine, its gateway and its proxy")
    await service.kill_node(0)


def _compare(out: Console, expected: list[SessionLog], received: list[SessionLog]) -> bool:
    found = Counter[str]()
    for before, after in zip(expected, received, strict=True):
        for difference in differences(before.words, after.words):
            found[difference.kind] += difference.n_words
    failures = [log.failure for log in (*expected, *received) if log.failure]
    n_resumed = sum(log.n_resumed for log in received)
    out.print(f"  {_n_words(received)} words; {n_resumed} connections were lost and mended")
    counts = ", ".join(f"{found[kind]} {kind}" for kind in KINDS)
    is_whole = not (found["lost"] or found["repeated"] or failures)
    out.print(f"\n[bold {'green' if is_whole else 'red'}]Words {counts}; sessions failed: {len(failures)}[/]")
    for failure in failures:
        out.print(f"  {failure}", markup=False)
    return is_whole


def _n_words(logs: list[SessionLog]) -> int:
    return sum(len(log.words) for log in logs)
