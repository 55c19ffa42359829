"""The systems that transcribe clips: tutti over REST and live, peers in processes of their own, and their names."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest

from benchmarks.files import systems
from benchmarks.files.endpoint import open_client
from benchmarks.files.labelled_clips import Clip
from benchmarks.files.systems import (
    FilesOverRest,
    LiveSessions,
    RunningSystem,
    Setup,
    Unavailable,
    open_peer,
    parse_system,
)
from benchmarks.server import RunningServer
from tests.app.conftest import running
from tests.fakes import FakeTranscriber, said, silence, speech
from tutti_server.app.service.settings import Settings

PROGRAM = """
import json, sys
options = json.loads(sys.argv[1])
if not options["folder"]:
    sys.exit("no checkpoint")
print(json.dumps({"versions": {"peer": "1.0"}}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if options["beam_size"] == 13:
        sys.exit("out of memory")
    print(json.dumps({"text": f"{options['folder']} {request['language']}"}), flush=True)
"""


def setup(scratch: Path, **fields: object) -> Setup:
    found = Setup(folder="folder", ct2_folder=lambda: "converted", scratch=scratch, pace=20.0)
    return replace(found, **fields)  # type: ignore[arg-type]  # the fields of `Setup`


def made_up(name: str, *spoken: Sequence[int]) -> Clip:
    """A clip that the fake engine understands, a channel for each of the lists of words."""
    channels = [np.concatenate((silence(0.2), speech(words), silence(0.7))) for words in spoken]
    longest = max(map(len, channels))
    pcm = tuple(np.rint(np.pad(each, (0, longest - len(each))) * 32768).astype(np.int16) for each in channels)
    return Clip(name=name, kind="synth-made-up", channels=pcm, texts=tuple(said(words) for words in spoken))


@asynccontextmanager
async def open_system(kind: type[RunningSystem], setup: Setup, url: str) -> AsyncIterator[RunningSystem]:
    """One of ours beside a server that runs in this process."""
    server = RunningServer(url, None)
    if kind is LiveSessions:
        yield LiveSessions(setup, server)
        return
    async with open_client(url, n_at_once=1, timeout_s=30) as client:
        yield FilesOverRest(setup, server, client)


@pytest.mark.parametrize("kind", [FilesOverRest, LiveSessions])
async def test_both_doors_of_the_service_hear_every_channel(kind: type[RunningSystem], tmp_path: Path) -> None:
    """Each clip once, with its text on its own channel. One that the service refuses has failed, and no other."""
    clips = [made_up("a", [1, 2, 3]), made_up("b", [4, 5, 6], [7, 8])]
    refused = replace(made_up("c", [4]), language="xx")
    async with (
        asyncio.timeout(30),
        running(Settings(port=0, max_ahead_s=600.0), FakeTranscriber()) as server,
        open_system(kind, setup(tmp_path), server.http) as system,
    ):
        results = await system.transcribe([*clips, refused])
    assert [(each.clip, tuple(channel.text for channel in each.channels)) for each in results[:2]] == [
        (each, each.texts) for each in clips
    ]
    assert [each.failure for each in results[:2]] == [None] * 2 and "language" in str(results[2].failure)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for the program that runs a peer."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    monkeypatch.setattr(systems, "PROGRAM", path)
    return path


async def test_a_peer_answers_for_each_channel(program: Path, tmp_path: Path) -> None:
    """It has the converted checkpoint, and detects the language of the kind for which none is named."""
    clips = [made_up("a", [1]), replace(made_up("b", [2], [3]), kind="human-multilingual")]
    async with asyncio.timeout(30), open_peer(setup(tmp_path), "int8", 1) as peer:
        assert peer.versions == {"peer": "1.0"}
        results = await peer.transcribe(clips)
    texts = [[channel.text for channel in each.channels] for each in results]
    assert texts == [["converted en"], ["converted None"] * 2]


async def test_a_peer_whose_process_ends_has_failed(program: Path, tmp_path: Path) -> None:
    """All clips from then on have failed."""
    async with asyncio.timeout(30), open_peer(setup(tmp_path), "int8", 13) as peer:
        results = await peer.transcribe([made_up("a", [1]), made_up("b", [2], [3])])
    assert [len(each.channels) for each in results] == [1, 2]
    assert all("its process ended" in str(each.failure) for each in results)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"ct2_folder": lambda: ""}, "faster-whisper did not start"),
        ({"peer_python": "/nowhere"}, "--peer-python /nowhere: No such file"),
    ],
)
async def test_a_peer_that_does_not_start_is_unavailable(
    change: dict[str, object], expected: str, program: Path, tmp_path: Path
) -> None:
    with pytest.raises(Unavailable, match=expected):
        async with asyncio.timeout(30), open_peer(setup(tmp_path, **change), "int8", 5):
            pass


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("tutti-float32", "tutti float32"),
        ("tutti-live", "tutti live auto"),
        ("tutti-live-int8", "tutti live int8"),
        ("faster-whisper-int8-5", "faster-whisper int8 5 beams"),
        *((name, None) for name in ("", "tutti", "tutti-int4", "tutti-live-int4", "faster-whisper-int8", "whisper")),
    ],
)
def test_names_say_what_a_system_is(name: str, title: str | None) -> None:
    if title is None:
        with pytest.raises(click.BadParameter, match="expected tutti-DTYPE"):
            parse_system(name)
        return
    found = parse_system(name)
    assert (found.title, found.is_ours, found.is_live) == (title, "tutti" in name, "live" in name)
