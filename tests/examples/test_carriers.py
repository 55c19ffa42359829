"""examples/carriers: each telephone system plays a call, and its text is that of the same recording as a file."""

import asyncio
import base64
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import av
import httpx
import numpy as np
import pytest
from starlette.routing import WebSocketRoute

from benchmarks.server import free_port
from tests.app.conftest import running as serve_live
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.compat.conftest import Host, Running
from tests.examples.conftest import EXAMPLES, run
from tests.fakes import FakeTranscriber
from tests.recordings import read, words
from tutti_server.app.server.plugins import make_settings
from tutti_server.app.server.routes import routes
from tutti_server.plugins.carriers import routes as carriers

PROGRAM = "carriers/player.py"
SECRET = base64.b64encode(b"a secret of the integration").decode()

BOTH = ("inbound", "outbound")
TRACKS = {
    **dict.fromkeys(("asterisk", "audiosocket", "freeswitch", "twilio", "vonage", "telnyx", "plivo", "jambonz"), BOTH),
    "audiohook": ("external", "internal"),
}
"""The sides of a call by the names that each system gives them, the one that speaks about the train first."""
PAGES = {"audiosocket": "asterisk"}
"""The page of those that have none of their own."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def exchange(host: Host) -> Iterator[tuple[Running, int]]:
    """A server for telephone systems, and its port for AudioSocket."""
    port = free_port()
    with host.running(api_keys="k", audiosocket_port=port, audiohook_secret=SECRET) as server:
        yield server, port


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A call with a side on each channel."""
    sides = [read("train"), read("hello")]
    n_samples = max(map(len, sides)) + 16_000
    stereo = np.stack([np.pad(side, (0, n_samples - len(side))) for side in sides], axis=1)
    path = tmp_path_factory.mktemp("calls") / "call.wav"
    path.write_bytes(wav(stereo / 32_768, n_channels=2))
    return path


def as_file(server: Running, name: str) -> list[str]:
    """The words of a recording that is uploaded."""
    recording = Path(__file__).parents[1] / "audio" / f"{name}.flac"
    answer = httpx.post(
        f"{server.http}/v1/audio/transcriptions",
        headers={"Authorization": "Bearer k"},
        files={"file": recording.read_bytes()},
        data={"model": "x", "response_format": "text", "language": "en"},
        timeout=60,
    )
    return words(answer.text)


@pytest.mark.nightly
def test_each_player_gives_the_text_of_the_file(exchange: tuple[Running, int], call: Path) -> None:
    """Both sides by their names, on one connection or on two. The audio of some is mu-law at 8 kHz."""
    server, port = exchange

    def play(carrier: str) -> subprocess.CompletedProcess[str]:
        options = ("--url", server.http, "--port", port, "--speed", 20)
        return run(PROGRAM, carrier, call, *options, TUTTI_API_KEY="k", AUDIOHOOK_SECRET=SECRET)

    with ThreadPoolExecutor() as pool:
        played = pool.map(play, TRACKS)
        train, hello = as_file(server, "train"), as_file(server, "hello")
    for done, (carrier, names) in zip(played, TRACKS.items(), strict=True):
        assert done.returncode == 0, done.stderr
        found: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            name, _, text = line.partition(": ")
            found.setdefault(name, []).extend(words(text))
        assert found == dict(zip(names, (train, hello), strict=True)), carrier


@pytest.mark.parametrize(("rate", "played"), [(44_100, 16_000), (8000, 8000)])
def test_any_audio_can_be_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: int, played: int) -> None:
    """At a rate that telephone systems know, with its sides apart."""
    spec = importlib.util.spec_from_file_location("recording", EXAMPLES / "carriers" / "recording.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "recording", module)
    spec.loader.exec_module(module)
    tone = (8000 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)).astype("<i2")
    with av.open(str(tmp_path / "call.flac"), "w") as container:
        track = container.add_stream("flac", rate=rate, layout="stereo")
        frame = av.AudioFrame.from_ndarray(np.stack([tone, tone * 0], axis=1).reshape(1, -1), "s16", "stereo")
        frame.sample_rate = rate
        container.mux(track.encode(frame))
        container.mux(track.encode(None))
    recording = module.Recording.open(tmp_path / "call.flac")
    assert (recording.sample_rate, recording.channels) == (played, 2)
    loud, silent = (np.frombuffer(recording.channel(number).data, "<i2") for number in (0, 1))
    assert len(loud) == pytest.approx(played, abs=50) and np.abs(loud).max() > 7000
    assert np.abs(silent).max() == 0
    assert len(recording.mulaw()) == pytest.approx(2 * 8000, abs=100)


def test_a_file_without_sound_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("no audio\n")
    done = run(PROGRAM, "twilio", tmp_path / "text.txt")
    assert done.returncode == 1
    assert re.fullmatch(r"player\.py: .*text\.txt: expected a file with sound, got .+\n", done.stderr)


def test_no_speed_is_0(call: Path) -> None:
    done = run(PROGRAM, "twilio", call, "--speed", 0)
    assert done.returncode == 2
    assert done.stderr.endswith("player.py: error: --speed: expected a number above 0, got 0\n")


async def test_a_refusal_is_one_line(call: Path) -> None:
    async with serve_live(make_settings({"port": 0, "api_keys": "k"}), FakeTranscriber()) as server:
        address = server.http.replace("http", "ws", 1)
        done = await asyncio.to_thread(run, PROGRAM, "freeswitch", call, "--url", address, TUTTI_API_KEY="x")
    assert done.returncode == 1
    assert re.fullmatch(r"player\.py: server rejected .*: HTTP 401 .*a valid API key is needed.*\n", done.stderr)


def test_every_telephone_system_has_a_player_and_is_named() -> None:
    """In the lists of README and players. Its page says that it was not run, and which document was read and when."""
    repository = Path(__file__).parents[2]
    listed = re.findall(
        r"^\| `(\w+)` \|", (repository / "examples" / "carriers" / "README.md").read_text(), re.MULTILINE
    )
    assert sorted(listed) == sorted(TRACKS)
    sockets = {
        route.path.split("/")[2]
        for route in (*routes(), *carriers.routes())
        if isinstance(route, WebSocketRoute) and route.path != "/"
    }
    assert sockets - {"calls", "listen", "realtime", "stream"} == TRACKS.keys() - {"audiosocket"}
    for page in sorted({PAGES.get(carrier, carrier) for carrier in TRACKS}):
        text = (repository / "docs" / "integrations" / f"{page}.md").read_text()
        (stated,) = re.findall(r"^\*\*Not run against [\w ]+ here\.\*\* (.+)$", text, re.MULTILINE)
        assert "](https://" in stated and re.search(r"read (in|on \d+) \w+ 20\d\d\b", stated), page
        assert f"(docs/integrations/{page}.md)" in (repository / "README.md").read_text(), page
