"""The captions of `tutti demo`."""

import asyncio
import io

import numpy as np
import pytest
from rich.console import Console

import tutti
from app.cli.demo import caption_line, run_demo
from app.errors import SessionError
from app.files.formats import segment_line
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.clients.python.client_fakes import Peer, make_interim, serve_script
from tests.clients.python.test_client_readme import converse


@pytest.mark.parametrize("start_s", [0.1, 3723.4])
def test_an_interim_begins_in_the_column_of_its_final_line(start_s: float) -> None:
    """So the text does not jump when it becomes final."""
    captions = tutti.Transcript()
    captions.add(tutti.SpeechStarted(utterance=0, channel=0, at_s=start_s))
    captions.add(make_interim("Hello", " there"))
    caption = captions.open_captions()[0]
    final = segment_line(caption.start_s, caption.start_s + 2.0, "Hello there")
    assert caption_line(captions).plain.index("Hello there") == final.index("Hello there")


async def test_the_demo_sends_its_key_to_the_server() -> None:
    out = io.StringIO()
    async with asyncio.timeout(30), serve_script(converse) as server:
        await run_demo(Console(file=out), server.url, io.BytesIO(wav(np.zeros(1600))), "a tone", "k1")
    assert server.requests[0].headers["Authorization"] == "Bearer k1"
    assert "Hello there." in out.getvalue()


async def test_a_lost_connection_is_shown_and_replaced() -> None:
    """With a line for the loss, and one for the new connection."""
    out = io.StringIO()
    n_connections = 0

    async def hang_up_once(peer: Peer) -> None:
        nonlocal n_connections
        n_connections += 1
        if n_connections > 1:
            await converse(peer)
            return
        await peer.begin()
        await peer.receive()
        await peer.socket.close(1012, "draining")

    async with asyncio.timeout(30), serve_script(hang_up_once) as server:
        await run_demo(Console(file=out, width=200), server.url, io.BytesIO(wav(np.zeros(1600))), "a tone")
    lost, again = (line for line in out.getvalue().splitlines() if line.startswith("connect"))
    assert lost.startswith("connection lost (") and "1012" in lost
    assert again == "connected again"
    assert "Hello there." in out.getvalue()


async def test_a_session_that_breaks_off_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says why; it is not a group of errors."""
    monkeypatch.setattr("app.cli.demo.RESUME_TIMEOUT_S", 0.1)

    async def hang_up(peer: Peer) -> None:
        await peer.begin()
        await peer.receive()
        await peer.socket.close(1011, "broken")

    with pytest.raises(SessionError, match="1011"):
        async with asyncio.timeout(30), serve_script(hang_up) as server:
            await run_demo(Console(file=io.StringIO()), server.url, io.BytesIO(wav(np.zeros(160_000))), "a tone")
