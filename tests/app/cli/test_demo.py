"""The captions of `tutti demo`."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from tests.app.conftest import Serve
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.app.media.test_file_decoder import encode
from tests.clients.python.client_fakes import SEGMENT, STOPPED, UTTERANCE, FakeServer, Peer, Script, serve_script
from tests.clients.python.test_client_readme import converse
from tests.fakes import MODEL, FakeTranscriber
from tutti_server.app.cli.demo import SAMPLES, known_samples, run_demo
from tutti_server.app.errors import SessionError


async def shown(script: Script, *files: bytes, key: str | None = None) -> tuple[list[str], FakeServer]:
    """The lines that the demo shows of these recordings, but for empty ones, and the server, which runs the script."""
    out = io.StringIO()
    async with serve_script(script) as server:
        await run_demo(Console(file=out, width=200), server.url, [io.BytesIO(each) for each in files], "a tone", key)
    return [line.strip() for line in out.getvalue().splitlines() if line.strip()], server


async def finish(peer: Peer) -> None:
    """Keep the audio, and say nothing about it."""
    await peer.begin()
    await peer.finish()


async def test_the_demo_sends_its_key_to_the_server() -> None:
    lines, server = await shown(converse, wav(np.zeros(1600)), key="k1")
    assert server.requests[0].headers["Authorization"] == "Bearer k1"
    assert "Hello there." in "".join(lines)


@pytest.mark.parametrize(("languages", "played"), [(("pt", "fr", "en"), ["en", "fr"]), (("en",), ["en"])])
async def test_the_demo_plays_what_the_model_can_understand(
    serve: Serve, languages: tuple[str, ...], played: list[str]
) -> None:
    """The bundled recordings, but none in a language that the model does not know."""
    server = await serve(FakeTranscriber(info=replace(MODEL, languages=languages)))
    for url in (f"ws://{server.address}", server.stream, server.http):
        assert await known_samples(url) == [SAMPLES[code] for code in played]


async def test_a_server_that_names_no_languages_is_explained() -> None:
    with pytest.raises(SessionError, match="expected a tutti server that names its languages"):
        async with serve_script(converse) as server:
            await known_samples(server.url)


async def test_recordings_follow_each_other_in_one_session() -> None:
    """With a pause between them, and to the last sample.

    The server detects the language, and each new one is named above its text.
    """

    async def two_languages(peer: Peer) -> None:
        await peer.begin()
        await peer.receive_until("stop")
        later = {"utterance": 1, "text": "Bom dia.", "language": "pt"}
        await peer.send(SEGMENT, UTTERANCE, SEGMENT | later, UTTERANCE | {"utterance": 1, "text": "Bom dia."}, STOPPED)

    lines, server = await shown(two_languages, wav(np.zeros(1600)), wav(np.zeros(4700)))
    assert "language" not in server.peer.messages[0]
    assert len(b"".join(server.peer.audio)) == 2 * (1600 + 16_000 + 4700)
    assert lines[0] == "Streaming a tone to fake at the pace of speech:"
    assert [lines[1], lines[3]] == ["English", "Portuguese"]
    assert lines[4].endswith("Bom dia.")


async def test_a_recording_shorter_than_a_message_is_sent_and_loud_samples_are_clipped() -> None:
    loud = np.full(700, 1.5, np.float32)
    loud[::2] = -1.5
    _, server = await shown(finish, encode("wav", "pcm_f32le", 16_000, loud))
    sent = np.frombuffer(b"".join(server.peer.audio), "<i2")
    assert sent.tolist() == [-32767, 32767] * 350


async def test_a_lost_connection_is_shown_and_replaced() -> None:
    """With a line for the loss, and one for the new connection."""
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

    lines, _ = await shown(hang_up_once, wav(np.zeros(1600)))
    lost, again = (line for line in lines if line.startswith("connect"))
    assert lost.startswith("connection lost (") and "1012" in lost
    assert again == "connected again"
    assert "Hello there." in "".join(lines)


async def test_a_session_that_breaks_off_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says why; it is not a group of errors."""
    monkeypatch.setattr("tutti_server.app.cli.demo.RESUME_TIMEOUT_S", 0.1)

    async def hang_up(peer: Peer) -> None:
        await peer.begin()
        await peer.receive()
        await peer.socket.close(1011, "broken")

    with pytest.raises(SessionError, match="1011"):
        await shown(hang_up, wav(np.zeros(160_000)))
