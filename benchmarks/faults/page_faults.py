"""Does the page lose or repeat a word when its network is cut, or its server restarted, in the middle of speech?

    python -m benchmarks.faults page --browser both --cuts 5,20,60 --runs 20 --restarts 20

Each run is a browser of its own that captions a recording, through a proxy of its own that stops all bytes for some
seconds and closes nothing, as a tunnel does. In the runs with a restart all pages lose their server at the same moment,
each at another place of its audio; SIGTERM and SIGKILL take turns. Every transcript is compared with that of an
undisturbed page of the same browser. The command exits with 1 if one differs, or if text that a page showed as solid
changed later.
"""

import asyncio
import random
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import machine, report
from benchmarks.faults.service import DisturbedService, disturbed_service
from benchmarks.live.faulty_proxy import faulty_proxy
from benchmarks.options import benchmark_command, parse_numbers, result_options, serve_arguments_argument
from benchmarks.recordings import Recording, load_bundled, with_silence
from benchmarks.report import Table
from benchmarks.scoring import count_errors, words
from benchmarks.server import ADMIT_ALL
from tests.browser import chromium, exact_microphone, firefox
from tests.browser.page import BrowserPage, OpenPage, PageError
from tutti_server.engine.api import SAMPLE_RATE

BROWSERS: dict[str, OpenPage] = {"chromium": chromium.open_page, "firefox": firefox.open_page}
BOTH = "both"
AROUND_S = 40.0
"""About this much of the recording is outside the cut, in seconds."""
FIRST_S = 4.0
"""The earliest moment of a fault, in seconds of audio."""
REST_S = 10.0
"""Seconds of audio after a fault, at least."""
TRAIL_S = 1.5
"""Seconds of silence after the recording."""
STAGGER_S = 2.0
"""Seconds between the starts of pages that lose their server together."""
GRACE_S = 300.0
"""A page may take this many seconds longer than its audio."""
SIGNALS = (signal.SIGTERM, signal.SIGKILL)
"""SIGTERM is a rolling restart, SIGKILL a crash."""
RESTART = "restart"
UNDISTURBED = "none"
ENDS = '["done", "lost", "failed"]'
"""The states of a page whose session is over. Only the first one is as it should be."""
WATCH_STATUS = """
    globalThis.outages = 0;
    new MutationObserver(() => {
      if (document.querySelector("#status").innerText === "Reconnecting…") outages += 1;
    }).observe(document.querySelector("#status"), {childList: true, characterData: true, subtree: true});
"""
"""Counts in the page how often it showed that it had lost its connection."""


PageFault = Callable[[BrowserPage], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class PageRun:
    lines: list[str]
    changes: list[str]
    """Solid text that changed later, and errors of the page."""
    n_outages: int = 0
    """How often the page showed that it reconnects."""

    @property
    def words(self) -> list[str]:
        """The words of all lines, without case and punctuation."""
        return words(" ".join(self.lines))


@dataclass(frozen=True, kw_only=True)
class Run:
    """One disturbed page, compared with an undisturbed one."""

    browser: str = ""
    fault: str
    at_s: float
    """The moment of the fault, in seconds of audio."""
    n_words: int
    n_lost: int
    n_added: int
    n_changed: int
    is_same: bool
    """Whether the lines are the same, to the character."""
    n_outages: int
    """How often the page showed that it reconnects. A short cut may not break the connection."""
    differences: list[str]
    changes: list[str]
    """Solid text that changed later, errors of the page, and an end that was not the right one."""


@benchmark_command()
@click.option("--cuts", default="5,20,60", show_default=True, help="Lengths of the cuts of the network, in seconds.")
@click.option("--runs", default=20, show_default=True, help="Runs for each length.")
@click.option("--restarts", default=20, show_default=True, help="Runs in which the server is restarted.")
@click.option("--undisturbed", default=10, show_default=True, help="Runs without a fault, for comparison.")
@click.option("--pages", default=4, show_default=True, help="How many pages run at the same time.")
@click.option("--browser", type=click.Choice([*BROWSERS, BOTH]), default=BOTH, show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of the moments of the faults.")
@result_options("page_faults")
@serve_arguments_argument
def main(path: Path, markdown: bool, **options: Any) -> None:
    """Compare the page's captions with and without cuts of its network and restarts of its server."""
    cuts = parse_numbers("--cuts", options["cuts"])
    if min(options["runs"], options["pages"]) < 1 or min(options["restarts"], options["undisturbed"]) < 0:
        raise click.UsageError("expected at least 1 for --runs and --pages, and no negative number")
    browsers = list(BROWSERS) if options["browser"] == BOTH else [options["browser"]]
    runs = []
    for browser in browsers:
        runs += asyncio.run(run_campaign(browser, cuts, options, path.with_suffix(".log")))
    result = {**machine.describe(), "runs": [asdict(run) for run in runs]}
    wrong = [
        f"{run.browser}, {run.fault} at {run.at_s:.1f} s: {each}"
        for run in runs
        for each in (*run.differences, *run.changes)
    ]
    report.finish([table(runs)], result, wrong, as_markdown=markdown, path=path)


async def run_campaign(browser: str, cuts: Sequence[int], options: dict[str, Any], log: Path) -> list[Run]:
    """Run the pages of one browser against a server of their own, whose output is written to `log`."""
    async with disturbed_service((*ADMIT_ALL, *options["serve_arguments"]), log) as service:
        # The same moments in each browser.
        campaign = Campaign(service, browser, options["pages"], random.Random(options["seed"]))
        return await campaign.run(cuts, options["runs"], options["restarts"], options["undisturbed"])


class Campaign:
    """Runs pages of one browser against one server, several at the same time."""

    def __init__(self, service: DisturbedService, browser: str, n_pages: int, random: random.Random) -> None:
        self._service = service
        self._browser = browser
        self._open_page = BROWSERS[browser]
        self._n_pages = n_pages
        self._random = random
        self._free_pages = asyncio.Semaphore(n_pages)
        self._runs: list[Run] = []

    async def run(self, cuts: Sequence[int], n_runs: int, n_restarts: int, n_undisturbed: int) -> list[Run]:
        """All runs: first those with cuts and without a fault, then those with restarts."""
        lengths = [*cuts, 0]
        recordings = {length: await asyncio.to_thread(_recording, length) for length in lengths}
        async with asyncio.TaskGroup() as tasks:
            undisturbed = {
                length: tasks.create_task(self._caption(recording)) for length, recording in recordings.items()
            }
        expected = {length: task.result() for length, task in undisturbed.items()}
        async with asyncio.TaskGroup() as tasks:
            for _ in range(n_runs):
                for length in cuts:
                    tasks.create_task(self._cut(length, recordings[length], expected[length]))
            for _ in range(n_undisturbed):
                tasks.create_task(self._leave_alone(recordings[0], expected[0]))
        for index, start in enumerate(range(0, n_restarts, self._n_pages)):
            n_pages = min(self._n_pages, n_restarts - start)
            await self._restart(SIGNALS[index % len(SIGNALS)], n_pages, recordings[0], expected[0])
        return self._runs

    async def _cut(self, length: int, recording: Recording, expected: PageRun) -> None:
        async with self._free_pages, faulty_proxy(self._service.url) as proxy:
            at_s = self._random.uniform(FIRST_S, recording.audio_s - length - REST_S)

            async def apply_fault(page: BrowserPage) -> None:
                await exact_microphone.wait_until_played(page, at_s, at_s + GRACE_S)
                await proxy.cut(length)

            page_run = await self._try_caption(proxy.url, recording, apply_fault)
        self._add(compared(f"cut of {length} s", at_s, expected, page_run))

    async def _leave_alone(self, recording: Recording, expected: PageRun) -> None:
        self._add(compared(UNDISTURBED, 0, expected, await self._caption(recording)))

    async def _restart(self, sent: signal.Signals, n_pages: int, recording: Recording, expected: PageRun) -> None:
        """End the server with a signal under some pages, each at another place of its recording, and start it again."""
        latest_s = recording.audio_s - REST_S
        first_s = self._random.uniform(FIRST_S + STAGGER_S * (n_pages - 1), latest_s)
        places = [first_s - STAGGER_S * number for number in range(n_pages)]
        arrived = asyncio.Barrier(n_pages)
        restarted = asyncio.Event()

        async def apply_fault(page: BrowserPage, at_s: float) -> None:
            await exact_microphone.wait_until_played(page, at_s, at_s + GRACE_S)
            # A page that fails does not arrive.
            async with asyncio.timeout(GRACE_S):
                if await arrived.wait() == 0:
                    began = time.monotonic()
                    self._service.signal(sent)
                    await self._service.wait_until_ended()
                    await self._service.start()
                    print(f"{sent.name}: {time.monotonic() - began:.1f} s without a server", file=sys.stderr)
                    restarted.set()
                await restarted.wait()

        async def run_page(number: int, at_s: float) -> None:
            await asyncio.sleep(STAGGER_S * number)
            page_run = await self._try_caption(self._service.url, recording, lambda page: apply_fault(page, at_s))
            self._add(compared(RESTART, at_s, expected, page_run))

        async with asyncio.TaskGroup() as tasks:
            for number, at_s in enumerate(places):
                tasks.create_task(run_page(number, at_s))

    async def _caption(self, recording: Recording) -> PageRun:
        async with self._free_pages:
            return await self._try_caption(self._service.url, recording, _apply_nothing)

    async def _try_caption(self, url: str, recording: Recording, apply_fault: PageFault) -> PageRun:
        """As `_caption_at`. A run that fails has no lines, and its error is among the changes."""
        try:
            return await self._caption_at(url, recording, apply_fault)
        except* (PageError, TimeoutError, OSError) as group:
            error = repr(group.exceptions)
        return PageRun(lines=[], changes=[f"the run failed: {error}"])

    async def _caption_at(self, url: str, recording: Recording, apply_fault: PageFault) -> PageRun:
        """What a page shows of a recording, and how often it showed that it had lost its connection."""
        deadline_s = recording.audio_s + GRACE_S
        with tempfile.TemporaryDirectory() as folder:
            silence = chromium.write_wav(Path(folder) / "silence.wav", np.zeros(SAMPLE_RATE, np.float32), SAMPLE_RATE)
            async with self._open_page(Path(folder) / "profile", silence) as page:
                await exact_microphone.play(page, with_silence(recording, TRAIL_S).samples)
                await exact_microphone.use_fixed_silence(page)
                await page.open(url)
                await exact_microphone.watch(page)
                await page.evaluate(WATCH_STATUS)
                await page.click("#toggle")
                await apply_fault(page)
                await page.wait_for("document.body.dataset.microphone === 'ended'", deadline_s)
                await page.wait_for("document.querySelector('#status').innerText === 'Listening'", GRACE_S)
                await page.click("#toggle")
                state = await page.wait_for(f"{ENDS}.find((end) => end === document.body.dataset.state)", GRACE_S)
                texts = "[...document.querySelectorAll('#finals .text')].map((e) => e.textContent.trim())"
                lines = await page.evaluate(texts)
                changes = [*await page.evaluate("changes"), *page.errors]
                if state != "done":
                    message = await page.evaluate("document.querySelector('#message').innerText")
                    changes.append(f"the session ended as {state}: {message}")
                return PageRun(lines=lines, changes=changes, n_outages=await page.evaluate("outages"))

    def _add(self, run: Run) -> None:
        run = replace(run, browser=self._browser)
        self._runs.append(run)
        verdict = "the same text" if run.is_same else f"another text: {run.differences}"
        where = f"{run.browser} {len(self._runs)}: {run.fault} at {run.at_s:.1f} s of audio"
        print(f"{where}, {run.n_outages} outages: {verdict}", file=sys.stderr)


async def _apply_nothing(page: BrowserPage) -> None:
    """Do nothing to this page."""


def _recording(cut_s: int) -> Recording:
    return load_bundled(cut_s + AROUND_S, 1)[0]


def compared(fault: str, at_s: float, expected: PageRun, actual: PageRun) -> Run:
    """How the text of a disturbed page differs from that of the undisturbed one."""
    errors = count_errors(expected.words, actual.words)
    return Run(
        fault=fault,
        at_s=round(at_s, 2),
        n_words=errors.words,
        n_lost=errors.missing,
        n_added=errors.inserted,
        n_changed=errors.substituted,
        is_same=expected.lines == actual.lines,
        n_outages=actual.n_outages,
        differences=[f"{mine!r} instead of {theirs!r}" for theirs, mine in differences(expected.lines, actual.lines)],
        changes=actual.changes,
    )


def differences(expected: list[str], actual: list[str]) -> Iterator[tuple[str, str]]:
    for kind, i, i_end, j, j_end in SequenceMatcher(None, expected, actual, False).get_opcodes():
        if kind != "equal":
            yield " ".join(expected[i:i_end]), " ".join(actual[j:j_end])


def table(runs: Iterable[Run]) -> Table:
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.browser, run.fault), []).append(run)
    rows = [
        (
            browser,
            fault,
            str(len(group)),
            str(sum(run.is_same for run in group)),
            str(sum(run.n_outages > 0 for run in group)),
            *(str(sum(getattr(run, name) for run in group)) for name in ("n_words", "n_lost", "n_added", "n_changed")),
            str(sum(len(run.changes) for run in group)),
        )
        for (browser, fault), group in sorted(groups.items(), key=lambda item: _place(*item[0]))
    ]
    columns = (
        *("browser", "fault", "runs", "runs with\nthe same text", "runs that\nreconnected"),
        *("words", "lost", "added", "changed", "changes of\nsolid text"),
    )
    return Table("The captions page through cuts of its network and restarts of its server", columns, rows)


def _place(browser: str, fault: str) -> tuple[str, bool, int, str]:
    """The place of a row: by browser, from the shortest cut to restarts."""
    return browser, fault == RESTART, len(fault), fault
