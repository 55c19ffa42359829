"""The comparison of live servers: which run, which stop early, and what is written."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import live_peers
from benchmarks.live.captions import Caption
from benchmarks.live.level import Snapshot, usage
from benchmarks.peer_servers.checkpoint import pad_with_silence
from benchmarks.peers.live_clients import CaptionLog, tutti_client
from benchmarks.peers.live_servers import PeerServer, ServerSetup
from benchmarks.recordings import Recording, ReferenceUtterance
from benchmarks.server import RunningServer

RECORDING = Recording(
    "test", np.zeros(48_000, np.float32), "left down", (ReferenceUtterance("left down", ((0.0, 2.0),)),)
)


@contextmanager
def nowhere(setup: ServerSetup) -> Iterator[RunningServer]:
    yield RunningServer("http://nowhere", None)


def run_of(*captions: Caption) -> dict[str, Any]:
    """A level of one client that gets these captions."""
    log = CaptionLog(recording=RECORDING, started_at=100.0, captions=list(captions))
    before, after = (Snapshot(RunningServer("", None)) for _ in range(2))
    return live_peers.level_result([log], usage([log], before, after))


def late_run(delay_s: float) -> dict[str, Any]:
    """A client that gets the first word this late after the recording, wrong at first, and the second never."""
    return run_of(Caption(101.5, "lift", ""), Caption(102.0 + delay_s, "left town", "left"))


def test_words_that_never_come_stand_beside_the_delays() -> None:
    run = late_run(0.5)
    assert (run["word_shown_s"]["p95"], run["word_shown_s"]["never"]) == (pytest.approx(1.5), 1)
    assert run["wer"] == 0.5


def test_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A late server gets no more clients, one that is not installed is reported, and the result holds all of it."""
    kinds = {name: PeerServer(name, nowhere, tutti_client) for name in ("fast", "slow", "mute")}
    kinds["absent"] = PeerServer("absent", nowhere, tutti_client, "no-such-environment")
    runs = iter([*[late_run(0.5)] * 3, *[late_run(9.0)] * 2, *[run_of()] * 2])

    async def run_level(*arguments: object) -> dict[str, Any]:
        return next(runs)

    monkeypatch.setattr(live_peers, "PEER_SERVERS", kinds)
    monkeypatch.setattr(live_peers, "run_level", run_level)
    path = tmp_path / "peers.json"
    options = ["--streams", "1,2", "--peers", ",".join(kinds), "--ct2", str(tmp_path), "--json", str(path)]
    ran = CliRunner().invoke(live_peers.main, [*options, "--markdown"])
    assert ran.exit_code == 1, ran.output
    assert [run["title"] for run in json.loads(path.read_text())["runs"]] == ["fast", "fast", "slow", "mute"]
    assert "absent: not installed: benchmarks/peers.sh no-such-environment" in ran.output
    assert "mute, 1 streams: no text came for any word" in ran.output
    assert "| fast | 1 | 1.50/1.50 | 1.50/1.50 | 1.50/1.50 | 50.0 | 50.0 | 0.0 |" in ran.output


def test_short_windows_are_padded_with_silence() -> None:
    """The quietest place of a spectrogram, not zero; one that is too long is cut."""
    spectrogram = np.array([[-0.5, 0.2], [0.4, 1.0]], np.float32)
    padded = pad_with_silence(spectrogram, 4)
    assert padded.shape == (2, 4)
    assert (padded[:, 2:] == -0.5).all()
    assert pad_with_silence(spectrogram, 1).shape == (2, 1)
