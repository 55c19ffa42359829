"""examples/obs: what is said into a room is read at the address that the program prints."""

import asyncio
import json
from pathlib import Path

import httpx

from tests.app.cli.child import running
from tests.clients.python.client_fakes import Peer, make_started, serve_script
from tests.compat.conftest import Running
from tests.examples.conftest import EXAMPLES
from tests.recordings import TEXTS

PROGRAM = "obs/publish.py"


def test_readers_get_what_is_said(server: Running, recordings: Path) -> None:
    """OBS gets the page of the room; a reader gets the text while the room lasts, and its end."""
    arguments = (recordings / "speech.wav", "--url", server.ws, "--room", "choir-7", "--size", "60", "--speed", "2")
    with running(EXAMPLES / PROGRAM, *arguments) as program, httpx.Client(timeout=60) as client:
        source = program.wait_for("browser source: ").removeprefix("browser source: ").strip()
        assert source == f"{server.http}/captions/choir-7?obs=1&lines=2&size=60"
        assert client.get(source).headers["content-type"].startswith("text/html")
        events = []
        with client.stream("GET", f"{server.http}/captions/choir-7/events") as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    events.append(json.loads(line.removeprefix("data: ")))
                    if events[-1]["type"] == "ended":
                        break
        assert program.end() == (0, "")
    assert (events[0]["type"], events[0]["name"]) == ("room", "choir-7")
    assert "".join(event["text"] for event in events if event["type"] == "segment") == TEXTS["hello"]


def test_a_room_without_a_name_gets_one_that_cannot_be_guessed(server: Running, recordings: Path) -> None:
    """Ctrl-C ends the audio, and the room."""
    with running(EXAMPLES / PROGRAM, recordings / "speech.wav", "--url", server.ws) as program:
        name = program.wait_for("for readers: ").strip().rpartition("/captions/")[2]
        assert len(name) >= 22
        program.interrupt()
        assert program.end() == (0, "")


async def test_a_second_ctrl_c_does_not_wait(recordings: Path) -> None:
    """It ends the program although the server has not finished."""

    async def forget(peer: Peer) -> None:
        await peer.receive_until("start")
        room = {"name": "choir-7", "path": "/captions/choir-7", "token": "t"}
        await peer.send(make_started() | {"room": room})
        await peer.receive_until("stop")
        program.interrupt()
        await peer.socket.wait_closed()

    async with serve_script(forget) as server:
        with running(EXAMPLES / PROGRAM, recordings / "speech.wav", "--url", server.url) as program:
            await asyncio.to_thread(program.wait_for, "for readers: ")
            program.interrupt()
            assert await asyncio.to_thread(program.end) == (130, "")
