"""The systems that transcribe clips: tutti over REST and live, peers in processes of their own, and their names."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import click
import httpx
import numpy as np
import pytest

from benchmarks.files import systems
from benchmarks.files.endpoint import open_client
from benchmarks.files.labelled_clips import Clip
from benchmarks.files.systems import (
    DEFAULT_SYSTEMS,
    FilesOverRest,
    LiveSessions,
    RunningSystem,
    Setup,
    TimedWord,
    Unavailable,
    open_peer,
    parse_system,
)
from benchmarks.live.faulty_proxy import faulty_proxy
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
    answer = {"text": options["folder"], "words": [["one", 0.5, 1.0]], "language": request["language"] or "es"}
    print(json.dumps(answer), flush=True)
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
        yield FilesOverRest(setup, server, client, has_words=False)


@pytest.mark.parametrize("kind", [FilesOverRest, LiveSessions])
async def test_both_doors_of_the_service_hear_every_channel(kind: type[RunningSystem], tmp_path: Path) -> None:
    """Each clip once, with its text on its own channel; live there are interims on the way."""
    clips = [made_up("a", [1, 2, 3]), made_up("b", [4, 5, 6], [7, 8]), made_up("c", [9, 10])]
    async with (
        asyncio.timeout(30),
        running(Settings(port=0, max_ahead_s=600.0), FakeTranscriber()) as server,
        open_system(kind, setup(tmp_path), server.http) as system,
    ):
        results = await system.transcribe(clips)
    assert [(each.clip, tuple(channel.text for channel in each.channels)) for each in results] == [
        (each, each.texts) for each in clips
    ]
    assert [each.failure for each in results] == [None] * 3
    assert (sum(each.n_interims for each in results) > 0) == (kind is LiveSessions)


@pytest.mark.parametrize(
    ("has_words", "body"),
    [
        (False, {"text": "uno", "languages": [{"code": "es"}]}),
        (True, {"text": "uno", "language": "spanish", "words": [{"word": "uno", "start": 0.5, "end": 1.0}]}),
    ],
)
async def test_files_have_the_language_that_was_detected(
    has_words: bool, body: dict[str, object], tmp_path: Path
) -> None:
    """As its code, in both formats of an answer; a request for times of words has the other one."""
    requests: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request.content)
        return httpx.Response(200, json=body)

    found = setup(tmp_path, detected_kinds=frozenset({"synth-made-up"}))
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://server") as client:
        system = FilesOverRest(found, RunningServer("", None), client, has_words=has_words)
        (result,) = await system.transcribe([made_up("a", [1])])
    assert [(each.text, each.language) for each in result.channels] == [("uno", "es")]
    assert result.channels[0].words == ((TimedWord("uno", 0.5, 1.0),) if has_words else ())
    assert (b"verbose_json" in requests[0]) == has_words
    assert b'name="language"' not in requests[0]


@pytest.mark.parametrize("kind", [FilesOverRest, LiveSessions])
async def test_a_clip_that_the_service_refuses_has_failed(kind: type[RunningSystem], tmp_path: Path) -> None:
    """The others are transcribed."""
    clips = [made_up("a", [1, 2, 3]), replace(made_up("b", [4]), language="xx")]
    async with (
        asyncio.timeout(30),
        running(Settings(port=0, max_ahead_s=600.0), FakeTranscriber()) as server,
        open_system(kind, setup(tmp_path), server.http) as system,
    ):
        first, second = await system.transcribe(clips)
    assert first.failure is None
    assert "language" in str(second.failure)


async def test_a_clip_whose_connection_is_lost_has_failed(tmp_path: Path) -> None:
    """The failure says what was lost, though the clip is still being sent."""
    async with (
        asyncio.timeout(30),
        running(Settings(port=0), FakeTranscriber()) as server,
        faulty_proxy(server.http) as proxy,
    ):
        system = LiveSessions(setup(tmp_path, pace=1.0), RunningServer(proxy.url, None))
        streaming = asyncio.create_task(system.transcribe([made_up("a", [1, 2, 3] * 20)]))
        await server.transcriber.opened.wait()
        proxy.drop_connections()
        (found,) = await streaming
    assert str(found.failure).startswith("ConnectionLost")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for the program that runs a peer."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    monkeypatch.setattr(systems, "PROGRAM", path)
    return path


async def test_a_peer_answers_for_each_channel(program: Path, tmp_path: Path) -> None:
    """faster-whisper has the converted checkpoint, and says which language it detects only if none is named."""
    clips = [made_up("a", [1]), replace(made_up("b", [2], [3]), kind="human-multilingual")]
    found = setup(tmp_path, detected_kinds=frozenset({"human-multilingual"}))
    async with asyncio.timeout(30), open_peer(found, "faster-whisper", beam_size=1, has_words=True) as peer:
        assert peer.versions == {"peer": "1.0"}
        first, second = await peer.transcribe(clips)
    assert [each.text for each in second.channels] == ["converted", "converted"]
    assert [each.language for each in (*first.channels, *second.channels)] == [None, "es", "es"]
    assert first.channels[0].words == (TimedWord("one", 0.5, 1.0),)


async def test_a_peer_whose_process_ends_has_failed(program: Path, tmp_path: Path) -> None:
    """All clips from then on have failed."""
    async with asyncio.timeout(30), open_peer(setup(tmp_path), "transformers", beam_size=13) as peer:
        results = await peer.transcribe([made_up("a", [1]), made_up("b", [2], [3])])
    assert [len(each.channels) for each in results] == [1, 2]
    assert all("its process ended" in str(each.failure) for each in results)


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"folder": ""}, "transformers did not start"), ({}, "--peer-python /nowhere: No such file")],
)
async def test_a_peer_that_does_not_start_is_unavailable(
    change: dict[str, str], expected: str, program: Path, tmp_path: Path
) -> None:
    engine = "transformers" if change else "faster-whisper"
    found = setup(tmp_path, peer_python="/nowhere", **change)
    with pytest.raises(Unavailable, match=expected):
        async with asyncio.timeout(30), open_peer(found, engine):
            pass


def test_names_say_what_a_system_is() -> None:
    titles = {name: parse_system(name).title for name in (*DEFAULT_SYSTEMS, "tutti-live-int8")}
    assert titles["tutti-live"] == "tutti live auto"
    assert titles["tutti-live-int8"] == "tutti live int8"
    assert titles["faster-whisper-int8-5"] == "faster-whisper int8 5 beams"
    assert titles["faster-whisper-float32-1-words"] == "faster-whisper float32 1 beam, words"
    assert len(set(titles.values())) == len(titles)
    assert [name for name in DEFAULT_SYSTEMS if parse_system(name).is_ours] == [
        name for name in DEFAULT_SYSTEMS if name.startswith("tutti")
    ]


@pytest.mark.parametrize("name", ["", "tutti", "tutti-int4", "tutti-live-int8-words", "faster-whisper-int8", "whisper"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(click.BadParameter, match="expected tutti-DTYPE"):
        parse_system(name)
