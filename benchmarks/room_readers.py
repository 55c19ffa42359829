"""Do hundreds of readers of a room get the speaker's text, how late, and what do they cost the server?

    python -m benchmarks.room_readers --readers 300 --seconds 300

A server with one gateway captions a speaker at the pace of speech: first for a while without readers, then with all of
them over server-sent events. Some readers come while the speaker speaks. A reader's delay is counted from the moment at
which the speaker's own connection got the same text, on the same machine. The cost is the CPU time of the gateway
beyond that of the session without readers. The command exits with 1 if a reader has another final text.
"""

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, report
from benchmarks.options import CONTEXT_SETTINGS, json_option, markdown_option, serve_arguments_argument
from benchmarks.recordings import Recording, load_bundled
from benchmarks.report import Table, number
from benchmarks.rooms.reader import ParsedEvents, Reader
from benchmarks.rooms.speaker import READ_TYPES, Speaker, SpeakerLog, content, final_text
from benchmarks.scoring import summary
from benchmarks.server import ADMIT_ALL, RunningServer, running_server

SCHEMA = 1
LATE_SHARE = 0.1
"""The fraction of readers who come while the speaker speaks."""
LATEST_SHARE = 0.5
"""The last reader comes when this fraction of the recording has been spoken."""
CONNECT_TIMEOUT_S = 60.0
END_TIMEOUT_S = 60.0
"""How long after the end of the session readers may get their last event, in seconds."""


@dataclass(frozen=True)
class ProcessState:
    """The CPU seconds and the open files of a process."""

    cpu_s: float
    n_files: int


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What the gateway used."""

    gateway_pids: list[int]
    without_readers: float
    """CPU seconds for each second of speech."""
    with_readers: float


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--readers", default=300, show_default=True, help="Readers of the room.")
@click.option("--seconds", default=300.0, show_default=True, help="About this much of the bundled clips is spoken.")
@click.option(
    "--without-readers-s", default=60.0, show_default=True, help="Seconds of speech before, without any reader."
)
@json_option("room_readers")
@markdown_option
@serve_arguments_argument
def main(path: Path, markdown: bool, **options: Any) -> None:
    """Measure the delay of a room's readers and their cost, and compare their text with the speaker's."""
    if options["readers"] < 1:
        raise click.UsageError("--readers: expected at least 1")
    before = load_bundled(options["without_readers_s"], 1)[0]
    recording = load_bundled(options["seconds"], 1)[0]
    with running_server(("--gateways", "1", *ADMIT_ALL, *options["serve_arguments"])) as server:
        log, readers, cost = asyncio.run(measure(server, before, recording, options["readers"]))
    result = {"schema": SCHEMA, **machine.describe(), **summarise(log, readers, cost, recording.audio_s)}
    report.show([table(result)], result, as_markdown=markdown, path=path)
    if result["same_text"] != options["readers"]:
        print(*result["differences"], sep="\n", file=sys.stderr)
        sys.exit(1)


async def measure(
    server: RunningServer, before: Recording, recording: Recording, n_readers: int
) -> tuple[SpeakerLog, list[Reader], Cost]:
    """Let the speaker speak without readers, and then with them."""
    assert server.pid is not None
    alone = [processes(server.pid)]
    async with Speaker(server.url) as speaker:
        await speaker.speak(before)
    alone.append(processes(server.pid))
    async with Speaker(server.url) as speaker, asyncio.TaskGroup() as tasks:
        parsed = ParsedEvents()
        readers = [Reader(server.url, speaker.room["path"], parsed) for _ in range(n_readers)]
        n_late = round(n_readers * LATE_SHARE)
        early, late = readers[n_late:], readers[:n_late]
        for reader in early:
            tasks.create_task(reader.read())
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            for reader in early:
                await reader.connected.wait()
        together = [processes(server.pid)]
        for index, reader in enumerate(late, 1):
            after_s = index / len(late) * recording.audio_s * LATEST_SHARE
            tasks.create_task(_come_late(reader, after_s))
        await speaker.speak(recording)
        await _wait_for_end(readers)
        together.append(processes(server.pid))
    cost = gateway_cost(alone, together, len(early), before.audio_s, recording.audio_s)
    return speaker.log, readers, cost


async def _wait_for_end(readers: Sequence[Reader]) -> None:
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            for reader in readers:
                await reader.ended.wait()
    except TimeoutError:
        n_waiting = sum(not reader.ended.is_set() for reader in readers)
        message = f"expected `ended` within {END_TIMEOUT_S:g} s of the end, {n_waiting} readers did not get it"
        raise click.ClickException(message) from None


async def _come_late(reader: Reader, after_s: float) -> None:
    await asyncio.sleep(after_s)
    await reader.read()


def processes(pid: int) -> dict[int, ProcessState]:
    """The state of a process and of each of its descendants, by process id."""
    found = {}
    for each in machine.family(pid):
        usage = machine.Usage.of(each)
        if usage is not None:
            found[each] = ProcessState(usage.cpu_s, sum(1 for _ in Path(f"/proc/{each}/fd").iterdir()))
    return found


def gateway_cost(
    alone: Sequence[Mapping[int, ProcessState]],
    together: Sequence[Mapping[int, ProcessState]],
    n_readers: int,
    alone_s: float,
    together_s: float,
) -> Cost:
    """What the processes that serve readers used. They are those whose open files grew with the readers' connections.

    Raises:
        ClickException: no process has the readers' connections.
    """
    pids = [
        pid
        for pid, state in together[0].items()
        if pid in alone[1] and state.n_files - alone[1][pid].n_files >= n_readers / 2
    ]
    if not pids:
        raise click.ClickException("expected a process of the server with the readers' connections, found none")

    def used_s(states: Sequence[Mapping[int, ProcessState]]) -> float:
        return sum(states[1][pid].cpu_s - states[0][pid].cpu_s for pid in pids)

    return Cost(gateway_pids=pids, without_readers=used_s(alone) / alone_s, with_readers=used_s(together) / together_s)


def delays_s(log: SpeakerLog, readers: Iterable[Reader]) -> list[float]:
    """For each text that a reader got live: how much later than the speaker, in seconds."""
    arrivals = log.arrivals()
    keys: dict[int, str] = {}
    found = []
    for reader in readers:
        for at, event in reader.events:
            # The readers share the parsed events, so an event has one identity for all.
            key = keys.get(id(event)) or keys.setdefault(id(event), content(event))
            spoken_at = arrivals.get(key)
            if spoken_at is not None and spoken_at >= reader.connected_at:
                found.append(at - spoken_at)
    return found


def summarise(log: SpeakerLog, readers: Sequence[Reader], cost: Cost, audio_s: float) -> dict[str, Any]:
    """The result without the machine."""
    expected = final_text(event for _, event in log.events)
    texts = [final_text(event for _, event in reader.events) for reader in readers]
    delays = delays_s(log, readers)
    n_events = sum(event["type"] in (*READ_TYPES, "retract") for reader in readers for _, event in reader.events)
    extra_s = (cost.with_readers - cost.without_readers) * audio_s
    return {
        "readers": len(readers),
        "audio_s": round(audio_s, 1),
        "speaker_events": len(log.events),
        "reader_events": n_events,
        "same_text": sum(text == expected for text in texts),
        "words": len(expected.split()),
        "reconnects": sum(reader.n_reconnects for reader in readers),
        "delay_s": {name: _rounded(value) for name, value in summary(delays).items()},
        "gateway_processes": len(cost.gateway_pids),
        "gateway_cpu": {"without_readers": cost.without_readers, "with_readers": cost.with_readers},
        "cpu_ms_per_reader_and_event": round(1000 * extra_s / n_events, 4) if n_events else None,
        "differences": [
            f"reader {index}: {text!r} instead of {expected!r}" for index, text in enumerate(texts) if text != expected
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def table(result: Mapping[str, Any]) -> Table:
    """One row."""
    delay = result["delay_s"]
    cpu = result["gateway_cpu"]
    row = (
        str(result["readers"]),
        str(result["same_text"]),
        str(result["words"]),
        f"{result['reader_events']:,}",
        *(number(None if delay[name] is None else 1000 * delay[name], 1) for name in ("p50", "p95", "max")),
        number(100 * cpu["without_readers"], 1),
        number(100 * cpu["with_readers"], 1),
        number(result["cpu_ms_per_reader_and_event"], 3),
        str(result["reconnects"]),
    )
    columns = (
        *("readers", "with the\nsame text", "words", "events", "delay p50,\nms", "p95, ms", "max, ms"),
        *("gateway CPU %,\nno readers", "with them", "CPU ms a reader\nand event", "reconnects"),
    )
    return Table("Readers of a room", columns, [row])


if __name__ == "__main__":
    main()
