"""The comparison of live servers: which run, which stop early, and what is written."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import live_peers
from benchmarks.live.captions import Caption
from benchmarks.peer_servers.checkpoint import alignment_heads, ask_for_no_timestamps, pad_with_silence, read_vocabulary
from benchmarks.peers import live_servers
from benchmarks.peers.live_clients import CaptionLog, tutti_client, whisperlivekit_client
from benchmarks.peers.live_servers import PeerServer, ServerSetup
from benchmarks.recordings import Recording, ReferenceUtterance
from benchmarks.server import RunningServer
from tests.small_model import SMALL_MODEL
from tutti_server.engine.checkpoint.tokenizer import Tokenizer

RECORDING = Recording(
    "test", np.zeros(48_000, np.float32), "left down", (ReferenceUtterance("left down", ((0.0, 2.0),)),)
)

RANDOM = ["--streams", "1,2", "--model", "random:tiny"]


@contextmanager
def nowhere(setup: ServerSetup) -> Iterator[list[RunningServer]]:
    yield [RunningServer("http://nowhere", None)]


def late_run(delay_s: float, *, shows: bool = True) -> dict[str, Any]:
    """A level of one client that gets a text this late, and none for the end of the second word.

    Args:
        delay_s: seconds after the end of the recording.
        shows: whether the first word is among what the text says.
    """
    caption = Caption(102.0 + delay_s, "left town" if shows else "other words", "left" if shows else "")
    log = CaptionLog(recording=RECORDING, started_at=100.0, captions=[caption])
    log.covered = [(102.0 + delay_s, 1.5), (103.0 + delay_s, 1.9)]
    return level_of(log)


def level_of(log: CaptionLog) -> dict[str, Any]:
    """A level of this one client."""
    servers = [RunningServer("", None)]
    return live_peers.level_result([log], live_peers._Snapshot(servers), live_peers._Snapshot(servers))


def test_words_that_never_come_stand_beside_the_delays() -> None:
    run = late_run(0.5)
    assert (run["word_shown_s"]["p95"], run["word_shown_s"]["never"]) == (pytest.approx(1.5), 1)
    assert run["word_shown_s"]["p95_of_all"] is None
    assert run["wer"] == 0.5


def test_random_weights_are_compared_by_what_texts_cover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first text that covers a word's end counts, whatever it says; only servers that tell this are measured."""
    kinds = {
        "late": PeerServer("late", nowhere, tutti_client),
        "mute": PeerServer("mute", nowhere, whisperlivekit_client),
    }

    async def run_level(*arguments: object) -> dict[str, Any]:
        return late_run(9.0, shows=False)

    monkeypatch.setattr(live_peers, "PEER_SERVERS", kinds)
    monkeypatch.setattr(live_peers, "run_level", run_level)
    monkeypatch.setattr(live_peers, "write_checkpoint", lambda model, folder: str(folder))
    path = tmp_path / "peers.json"
    ran = CliRunner().invoke(live_peers.main, [*RANDOM, "--give-up", "20", "--json", str(path), "--markdown"])
    assert ran.exit_code == 0, ran.output
    result = json.loads(path.read_text())
    assert [run["streams"] for run in result["runs"]] == [1, 1]
    assert result["runs"][0]["word_covered_s"] == {**result["runs"][0]["word_covered_s"], "never": 1, "p50": 10.0}
    assert "| late | 1 | 10.00/10.00 | ∞ | 50.0 |" in ran.output
    ran = CliRunner().invoke(live_peers.main, [*RANDOM, "--json", str(path)])
    assert len(json.loads(path.read_text())["runs"]) == 1


@pytest.mark.parametrize(("model", "covered"), [("random:tiny", []), (SMALL_MODEL, [(103.0, 9.0)])])
def test_a_server_that_writes_nothing_to_measure_fails_the_comparison(
    model: str, covered: list[tuple[float, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a text that covers a word, with random weights, nor one that shows a word, with others."""

    async def run_level(*arguments: object) -> dict[str, Any]:
        return level_of(CaptionLog(recording=RECORDING, started_at=100.0, covered=covered))

    monkeypatch.setattr(live_peers, "PEER_SERVERS", {"mute": PeerServer("mute", nowhere, tutti_client)})
    monkeypatch.setattr(live_peers, "run_level", run_level)
    monkeypatch.setattr(live_peers, "write_checkpoint", lambda source, target: str(target))
    options = ["--model", model, "--ct2", str(tmp_path), "--json", str(tmp_path / "peers.json")]
    ran = CliRunner().invoke(live_peers.main, options)
    assert ran.exit_code == 1 and "mute, 1 streams: no text came for any word" in ran.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--peers", "simulstreaming"], "expected some of tutti,whisperlive,whisperlive-batch, got simulstreaming"),
        (["--peers", "whisperlive", "--", "--threads", "1"], "make no sense without tutti"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options: list[str], message: str) -> None:
    ran = CliRunner().invoke(live_peers.main, [*RANDOM, *options])
    assert ran.exit_code == 2 and message in ran.output


def test_a_checkpoint_that_cannot_be_converted_needs_another_one_for_the_peers() -> None:
    ran = CliRunner().invoke(live_peers.main, ["--model", SMALL_MODEL, "--peers", "tutti"])
    assert ran.exit_code == 1 and "expected --ct2 with it" in ran.output


def test_servers_get_what_random_weights_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments for `tutti serve` reach it, and WhisperLive is asked for no timestamps."""
    commands: list[list[str]] = []

    @contextmanager
    def running(command: list[str], *arguments: object, **options: object) -> Iterator[RunningServer]:
        commands.append(command)
        yield RunningServer("", None)

    monkeypatch.setattr(live_servers, "running_server", running)
    monkeypatch.setattr(live_servers, "running_process", running)
    for folder in ("random:tiny", "trained"):
        setup = ServerSetup(
            folder=folder, ct2_folder="", language="en", n_threads=1, n_streams=1, tutti_arguments=("--device", "cpu")
        )
        for name in ("tutti", "whisperlive-batch"):
            with live_servers.PEER_SERVERS[name].start(setup):
                pass
    tutti_random, peer_random, tutti_trained, peer_trained = commands
    assert tutti_random[-2:] == tutti_trained[-2:] == ["--device", "cpu"]
    assert peer_random[-2:] == ["batch", "no-timestamps"] and peer_trained[-1] == "batch"


def test_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A late server gets no more clients, one that is not installed is reported, and the result holds all of it."""
    delays_s = {"fast": 0.5, "slow": 9.0}
    kinds = {name: PeerServer(name, nowhere, tutti_client) for name in delays_s}
    kinds["absent"] = PeerServer("absent", nowhere, tutti_client, "no-such-environment")
    runs = iter(["fast"] * 3 + ["slow"] * 2)

    async def run_level(*arguments: object) -> dict[str, Any]:
        return late_run(delays_s[next(runs)])

    monkeypatch.setattr(live_peers, "PEER_SERVERS", kinds)
    monkeypatch.setattr(live_peers, "run_level", run_level)
    path = tmp_path / "peers.json"
    options = ["--streams", "1,2", "--peers", ",".join(kinds), "--ct2", str(tmp_path), "--json", str(path)]
    ran = CliRunner().invoke(live_peers.main, [*options, "--markdown"])
    assert ran.exit_code == 1, ran.output
    result = json.loads(path.read_text())
    assert [run["peer"] for run in result["runs"]] == ["fast", "fast", "slow"]
    assert "absent: not installed: benchmarks/peers.sh no-such-environment" in ran.output
    assert "| fast | 1 | 1.50/1.50 |" in ran.output
    assert "| ∞ |" in ran.output


async def test_servers_of_one_client_are_used_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client has a server of its own while there are enough."""
    heard: list[str] = []

    async def client(url: str, log: CaptionLog, language: str) -> None:
        heard.append(url)

    monkeypatch.setattr(live_peers, "STAGGER_S", 0.0)
    servers = [RunningServer(f"http://{name}", None) for name in ("a", "b", "c")]
    for n, expected in ((2, ["http://a", "http://b"]), (4, ["http://a", "http://b", "http://c", "http://a"])):
        heard.clear()
        run = await live_peers.run_level(servers, client, [RECORDING] * n, "en")
        assert (heard, run["failed"]) == (expected, 0)


def test_usage_of_servers_is_added_up() -> None:
    one, two = (live_peers._Snapshot([RunningServer("", os.getpid())] * n) for n in (1, 2))
    assert one.rss_mib and two.rss_mib and two.rss_mib == pytest.approx(2 * one.rss_mib, rel=0.2)
    assert live_peers._Snapshot([RunningServer("", os.getpid()), RunningServer("", None)]).server_s is None


def test_unknown_peers_are_told() -> None:
    ran = CliRunner().invoke(live_peers.main, ["--peers", "tutti,nobody"])
    assert ran.exit_code == 2
    assert "got nobody" in ran.output


def test_every_kind_has_a_list_of_packages() -> None:
    """`peers.sh` installs what the comparison needs, all of it pinned."""
    for kind in live_servers.PEER_SERVERS.values():
        if kind.environment:
            lines = (live_servers.PROGRAMS / f"{kind.environment}.txt").read_text().splitlines()
            assert all("==" in line for line in lines if not line.startswith("#"))


def test_peers_get_the_vocabulary_of_the_checkpoint() -> None:
    """Its byte pairs make up the same text, and its special tokens keep their places."""
    folder = Path(SMALL_MODEL)
    ranks, special = read_vocabulary(folder)
    text_of = {rank: piece for piece, rank in ranks.items()}
    tokens = Tokenizer.from_folder(folder).encode(" Good afternoon, naïve café")
    assert b"".join(text_of[token] for token in tokens).decode() == " Good afternoon, naïve café"
    assert len(ranks) + len(special) == 4681
    assert special["<|startoftranscript|>"] == len(ranks) + 1
    assert alignment_heads(folder)


def test_random_weights_are_asked_for_no_timestamps() -> None:
    """Whatever the peer asks for; the rest of its prompt stays."""

    class Model:
        def get_prompt(self, tokenizer: str, previous: str, without_timestamps: bool = False) -> tuple[str, str, bool]:
            return tokenizer, previous, without_timestamps

    ask_for_no_timestamps(Model)
    assert Model().get_prompt("words", previous="before", without_timestamps=False) == ("words", "before", True)


def test_short_windows_are_padded_with_silence() -> None:
    """The quietest place of a spectrogram, not zero; one that is too long is cut."""
    spectrogram = np.array([[-0.5, 0.2], [0.4, 1.0]], np.float32)
    padded = pad_with_silence(spectrogram, 4)
    assert padded.shape == (2, 4)
    assert (padded[:, 2:] == -0.5).all()
    assert pad_with_silence(spectrogram, 1).shape == (2, 1)
