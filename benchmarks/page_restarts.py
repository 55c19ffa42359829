"""Does the captions page lose or repeat a word when its server is restarted in the middle of speech?

    python -m benchmarks.page_restarts --restarts 20

Two headless Chromiums caption the same recording at the same time: one with a server that runs on, one with a server
that is ended again and again and started anew on the same port. SIGTERM (a rolling restart) and SIGKILL (a crash) take
turns. The table compares the texts word by word. The command exits with 1 if they differ, or if text that the page
showed as solid changed later.
"""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import machine, report
from benchmarks.options import CONTEXT_SETTINGS, json_option, markdown_option, serve_arguments_argument
from benchmarks.recordings import Recording, load_bundled, with_silence
from benchmarks.report import Table, number
from benchmarks.scoring import count_errors, words
from benchmarks.server import free_port, running_process
from engine.api import SAMPLE_RATE
from tests.browser import exact_microphone
from tests.browser.chromium import Page, open_page, write_wav

SCHEMA = 1
FIRST_S = 5.0
"""The time of the first restart, in seconds of audio."""
REST_S = 10.0
"""Seconds of audio between the last restart and the end of the recording."""
TRAIL_S = 1.5
"""Seconds of silence after the recording."""
SIGNALS = (signal.SIGTERM, signal.SIGKILL)
GRACE_S = 300.0
"""The page may take this many seconds longer than its audio."""


@dataclass(frozen=True, kw_only=True)
class PageRun:
    """What a page showed."""

    lines: list[str]
    changes: list[str]
    """Solid text that changed later, and errors of the page."""
    outages_s: list[float] = field(default_factory=list)
    """How long each restart took, from the signal until the server was ready."""

    @property
    def words(self) -> list[str]:
        """The words of all lines, without case and punctuation."""
        return words(" ".join(self.lines))


class RestartedServer:
    """`tutti serve` in a process of its own, on one port."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._command = [
            sys.executable,
            "-m",
            "app",
            "serve",
            "--port",
            str(port),
            "--log-level",
            "warning",
            *arguments,
        ]
        self._running = ExitStack()
        self._pid: int | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the server until the block is left."""
        try:
            self._start()
            yield
        finally:
            self._running.close()

    def restart(self, number: signal.Signals) -> float:
        """End the process with a signal, and start it again. Returns the seconds without a server."""
        began = time.monotonic()
        assert self._pid is not None
        os.kill(self._pid, number)
        self._running.close()
        self._start()
        return time.monotonic() - began

    def _start(self) -> None:
        self._pid = self._running.enter_context(running_process(self._command, self._port, ready_path="/readyz")).pid


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option("--restarts", default=20, show_default=True, help="How many times the server is restarted.")
@click.option("--seconds", default=300.0, show_default=True, help="About this much of the bundled clips.")
@json_option("page_restarts")
@markdown_option
@serve_arguments_argument
def main(restarts: int, seconds: float, path: Path, markdown: bool, serve_arguments: tuple[str, ...]) -> None:
    """Compare the page's captions with and without restarts of its server."""
    recording = load_bundled(seconds, 1)[0]
    if restarts < 1 or recording.audio_s < FIRST_S + REST_S:
        raise click.UsageError("--restarts and --seconds: expected at least 1, and at least 15 seconds of audio")
    result = {"schema": SCHEMA, **machine.describe()} | asyncio.run(compare(recording, restarts, serve_arguments))
    report.show([table(result)], result, as_markdown=markdown, path=path)
    wrong = [*result["differences"], *result["changes"]]
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    sys.exit(1 if wrong else 0)


async def compare(recording: Recording, restarts: int, serve_arguments: tuple[str, ...]) -> dict[str, Any]:
    """Caption the recording on two pages at once, one of them with restarts of its server."""
    times = [float(at_s) for at_s in np.linspace(FIRST_S, recording.audio_s - REST_S, restarts)]
    async with asyncio.TaskGroup() as tasks:
        undisturbed = tasks.create_task(caption(recording, [], serve_arguments))
        disturbed = tasks.create_task(caption(recording, times, serve_arguments))
    return compared(recording, undisturbed.result(), disturbed.result())


async def caption(recording: Recording, restart_at_s: list[float], serve_arguments: tuple[str, ...]) -> PageRun:
    """Caption the recording on a page whose server is restarted at these times of the audio."""
    server = RestartedServer(serve_arguments)
    running = server.running()
    # A thread, because starting a server blocks. The threads of the event loop live as long as the loop, and the server
    # would end with its thread.
    await asyncio.to_thread(running.__enter__)
    try:
        with tempfile.TemporaryDirectory() as folder:
            silence = write_wav(Path(folder) / "silence.wav", np.zeros(SAMPLE_RATE, np.float32), SAMPLE_RATE)
            async with open_page(Path(folder) / "profile", silence) as page:
                await exact_microphone.play(page, with_silence(recording, TRAIL_S).samples)
                await exact_microphone.use_fixed_silence(page)
                await page.open(server.url)
                await exact_microphone.watch(page)
                await page.click("#toggle")
                outages_s = [await _restart(page, server, index, at_s) for index, at_s in enumerate(restart_at_s)]
                deadline_s = recording.audio_s + GRACE_S
                await page.wait_for("document.body.dataset.microphone === 'ended'", deadline_s)
                await page.click("#toggle")
                await page.wait_for("document.body.dataset.state === 'done'", deadline_s)
                texts = "[...document.querySelectorAll('#finals .text')].map((e) => e.textContent.trim())"
                return PageRun(
                    lines=await page.evaluate(texts),
                    changes=[*await page.evaluate("changes"), *page.errors],
                    outages_s=outages_s,
                )
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


async def _restart(page: Page, server: RestartedServer, index: int, at_s: float) -> float:
    """Restart the server when the page has sent this much audio, and wait until the page listens again."""
    elapsed = "document.querySelector('#elapsed').textContent.split(':').reduce((whole, part) => 60 * whole + +part, 0)"
    await page.wait_for(f"{elapsed} >= {at_s}", at_s + GRACE_S)
    took_s = await asyncio.to_thread(server.restart, SIGNALS[index % len(SIGNALS)])
    await page.wait_for("document.querySelector('#status').innerText === 'Listening'", GRACE_S)
    print(f"restart {index + 1} at {at_s:.0f} s of audio: {took_s:.1f} s without a server", file=sys.stderr)
    return took_s


def compared(recording: Recording, undisturbed: PageRun, disturbed: PageRun) -> dict[str, Any]:
    """The result: the words and lines of both pages, and where they differ."""
    errors = count_errors(undisturbed.words, disturbed.words)
    return {
        "audio_s": recording.audio_s,
        "restarts": len(disturbed.outages_s),
        "outages_s": [round(each, 1) for each in disturbed.outages_s],
        "words": errors.words,
        "lost": errors.missing,
        "added": errors.inserted,
        "changed": errors.substituted,
        "lines": {"undisturbed": undisturbed.lines, "disturbed": disturbed.lines},
        "same_lines": undisturbed.lines == disturbed.lines,
        "differences": [
            f"{mine!r} instead of {theirs!r}" for theirs, mine in differences(undisturbed.words, disturbed.words)
        ],
        "changes": [*undisturbed.changes, *disturbed.changes],
    }


def differences(expected: list[str], actual: list[str]) -> Iterator[tuple[str, str]]:
    """The places where two texts differ: the words of the first, and those of the second."""
    for kind, i, i_end, j, j_end in SequenceMatcher(None, expected, actual, False).get_opcodes():
        if kind != "equal":
            yield " ".join(expected[i:i_end]), " ".join(actual[j:j_end])


def table(result: dict[str, Any]) -> Table:
    """The figures of both pages in one row."""
    outages_s = result["outages_s"]
    row = (
        str(result["restarts"]),
        f"{number(min(outages_s), 1)} to {number(max(outages_s), 1)}",
        number(result["audio_s"], 0),
        *(str(result[name]) for name in ("words", "lost", "added", "changed")),
        "yes" if result["same_lines"] else "no",
        str(len(result["changes"])),
    )
    columns = (
        *("restarts", "without a\nserver, s", "audio, s", "words", "lost", "added", "changed", "same lines"),
        "changes of\nsolid text",
    )
    return Table("The captions page through restarts of its server, beside one without", columns, [row])


if __name__ == "__main__":
    main()
