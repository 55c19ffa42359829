"""The load generator against a real server on a loopback port, around the fake engine."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.live import streams
from benchmarks.live.client import ClientProfile
from benchmarks.live.level import run_level
from benchmarks.live.network import Network
from benchmarks.live.report import table
from benchmarks.recordings import Recording, ReferenceUtterance
from benchmarks.server import RunningServer, running_server
from tests.app.conftest import running
from tests.fakes import FakeTranscriber, said, silence, speech
from tutti import AudioFormat
from tutti_server.app.service.settings import Settings
from tutti_server.engine.api import SAMPLE_RATE

WORDS = [1, 2, 3]
AUDIO = np.concatenate((silence(0.2), speech(WORDS), silence(0.7)))
SPOKEN = ReferenceUtterance(said(WORDS), ((0.2, 1.04),))
MADE_UP = Recording("made-up", AUDIO, SPOKEN.text, (SPOKEN,))


async def measured(profiles: list[ClientProfile] | None = None, max_sessions: int = 10) -> dict[str, Any]:
    """One level of two clients."""
    async with (
        asyncio.timeout(30),
        running(replace(Settings(port=0), max_sessions=max_sessions), FakeTranscriber()) as server,
    ):
        return await run_level(RunningServer(server.http, None), [MADE_UP, MADE_UP], "en", profiles)


async def test_a_level_is_measured() -> None:
    """Every word is heard, nothing failed, and every latency has its values."""
    level = await measured()
    assert level["problems"] == []
    assert (level["streams"], level["failed"], level["wer"], level["missing"]) == (2, 0, 0.0, 0.0)
    assert level["audio_s"] == pytest.approx(2 * len(AUDIO) / SAMPLE_RATE)
    assert level["wall_s"] >= len(AUDIO) / SAMPLE_RATE
    for name, n in (("first_text_s", 2), ("final_s", 2), ("final_true_s", 2), ("word_shown_s", 6)):
        assert level[name]["n"] == n
        assert level[name]["p95"] > 0
    assert level["engine"]["windows_done"] >= 2
    assert level["generator"]["late_s"]["n"] == 2 * int(np.ceil(len(AUDIO) / SAMPLE_RATE / 0.1))


async def test_errors_are_told_by_encoding() -> None:
    """In the result and, where there are several, in the table."""
    level = await measured([ClientProfile(AudioFormat("mulaw", 8_000)), ClientProfile()])
    assert {name: each["words"] for name, each in level["by_encoding"].items()} == {
        "mulaw@8000": 6,
        "pcm_s16le@16000": 6,
    }
    rows = {row[0]: row[1] for row in table({"levels": [level]}).rows}
    assert rows["WER % of pcm_s16le@16000"] == "0.0"
    assert "WER % of mulaw@8000" in rows


async def test_a_refused_session_has_failed() -> None:
    """A server without room for the second client is not measured as if it had served it."""
    level = await measured(max_sessions=1)
    assert level["failed"] == 1
    assert "overloaded" in " ".join(level["problems"]).lower()


@pytest.mark.parametrize(("failed", "exit_code"), [(0, 0), (1, 1)])
def test_the_command_fails_when_a_session_failed(
    failed: int, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is written in any case: JSON, and the table beside it."""
    level = asyncio.run(measured())
    level["failed"], level["problems"] = failed, ["stream 0: lost"] * failed

    async def fake_run_level(*arguments: object) -> dict[str, Any]:
        return level

    monkeypatch.setattr(streams, "run_level", fake_run_level)
    monkeypatch.setattr(streams, "warm_up", lambda server, language: None)
    path = tmp_path / "live.json"
    ran = CliRunner().invoke(
        streams.main, ["--url", "http://nowhere", "--streams", "2", "--seconds", "5", "--markdown", "--json", str(path)]
    )
    assert ran.exit_code == exit_code, ran.output
    assert ("2 streams: stream 0: lost" in ran.output) == bool(failed)
    result = json.loads(path.read_text())
    assert {"benchmark", "schema", "started", "command", "revision", "machine", "versions", "levels"} <= result.keys()
    assert result["levels"] == [level]
    assert path.with_suffix(".md").read_text() in ran.output
    assert "| WER % | 0.0 |" in ran.output


def test_clients_are_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encodings in turn, each client with chances of its own, and all of it in the result."""
    level = asyncio.run(measured())
    given: list[tuple[list[Recording], list[ClientProfile]]] = []

    async def fake_run_level(
        server: object, recordings: list[Recording], language: object, profiles: list[ClientProfile]
    ) -> dict[str, Any]:
        given.append((recordings, profiles))
        return level

    monkeypatch.setattr(streams, "run_level", fake_run_level)
    monkeypatch.setattr(streams, "warm_up", lambda server, language: None)
    asked = (
        "--streams 3 --seconds 20 --talk 0.4 --jitter 50 --bursts --disconnects 2 --encodings mulaw,pcm_s16le --seed 5"
        " --endpointing adaptive"
    )
    path = tmp_path / "live.json"
    ran = CliRunner().invoke(streams.main, ["--url", "http://nowhere", "--json", str(path), *asked.split()])
    assert ran.exit_code == 0, ran.output
    ((recordings, profiles),) = given
    network = Network(0.05, True, 2.0)
    mulaw, pcm = AudioFormat("mulaw", 8_000), AudioFormat()
    assert profiles == [
        ClientProfile(mulaw, network, 5, "adaptive"),
        ClientProfile(pcm, network, 6, "adaptive"),
        ClientProfile(mulaw, network, 7, "adaptive"),
    ]
    assert len({recording.samples.tobytes() for recording in recordings}) == 3
    result = json.loads(path.read_text())
    assert (result["talk"], result["encodings"], result["seed"]) == (0.4, ["mulaw@8000", "pcm_s16le@16000"], 5)
    assert result["endpointing"] == "adaptive"
    assert result["network"] == {"jitter_s": 0.05, "has_bursts": True, "losses_per_min": 2.0}


def test_a_server_that_dies_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured before is written, and the command fails."""

    async def fake_run_level(*arguments: object) -> dict[str, Any]:
        raise ConnectionRefusedError("gone")

    path = tmp_path / "live.json"
    monkeypatch.setattr(streams, "run_level", fake_run_level)
    monkeypatch.setattr(streams, "warm_up", lambda server, language: None)
    ran = CliRunner().invoke(streams.main, ["--url", "http://nowhere", "--streams", "1,2", "--json", str(path)])
    assert ran.exit_code == 1
    assert json.loads(path.read_text())["ended_early"] == "1 streams: the server no longer answers: gone"


@pytest.mark.parametrize("text", ["", "0", "1,x", "-1"])
def test_bad_numbers_of_streams_are_told(text: str) -> None:
    ran = CliRunner().invoke(streams.main, ["--streams", text])
    assert ran.exit_code == 2
    assert "expected numbers such as 1,2,4" in ran.output


def test_a_server_that_does_not_start_is_told() -> None:
    """With what it printed."""
    with pytest.raises(Exception, match="No such option"), running_server(["--no-such-option"]):
        pass
