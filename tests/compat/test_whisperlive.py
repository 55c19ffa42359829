"""WhisperLive: its protocol without a network, and its own client against a real server."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compat.conformance import supported
from tests.compat.conftest import KEY, Running
from tests.compat.exchange import golden, replay
from tests.recordings import AUDIO, TEXTS, read, words
from tutti_server.app.dialects.whisperlive.wire import WhisperLive
from tutti_server.app.media.pcm import Samples

CLIENT = Path(__file__).parent / "python" / "whisperlive.py"
# Where `make setup` puts the package: its requirements (torch, openvino, ...) are those of its server.
PACKAGE = Path(sys.prefix) / "whisper-live"
CLIENT_TIMEOUT_S = 60
FRAME_BYTES = 4096 * 4


def as_float32(samples: Samples) -> list[bytes]:
    data = samples.astype("<f4").tobytes()
    return [data[at : at + FRAME_BYTES] for at in range(0, len(data), FRAME_BYTES)]


@pytest.mark.parametrize("path", golden("whisperlive"), ids=lambda path: path.stem)
def test_golden_exchanges(path: Path) -> None:
    replay(path, WhisperLive(), as_float32)


@pytest.fixture
def client(tmp_path: Path) -> Callable[..., Any]:
    assert PACKAGE.is_dir(), "whisper-live is missing: run `make setup`"

    def run(server: Running, query: str = "", **arguments: object) -> Any:
        host, _, port = server.address.partition(":")
        arguments |= {"host": host, "port": port + query}
        done = subprocess.run(
            [sys.executable, str(CLIENT), json.dumps(arguments)],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT_S,
            env=os.environ | {"PYTHONPATH": str(PACKAGE)},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@supported("whisperlive", "send_last_n_segments")
@supported("whisperlive", "float32 audio")
@pytest.mark.nightly
def test_the_package_transcribes_a_file(server: Running, client: Callable[..., Any], tmp_path: Path) -> None:
    """The whole text without an END_OF_AUDIO before it, each segment once, in its list and in its subtitles."""
    srt = tmp_path / "out.srt"
    options = {"lang": "en", "send_last_n_segments": 3}
    done = client(
        server, run="transcribe_file", path=str(AUDIO / "train.flac"), srt=str(srt), wait_s=15, options=options
    )
    # From websocket-client 1.9 on it takes the server's close at the end for an error, if it comes before its own.
    assert not done["failed"] or "code 1000" in done["error"]
    assert done["text"] == TEXTS["train"]
    assert all(segment["completed"] for segment in done["segments"])
    cues = srt.read_text().strip().split("\n\n")
    assert len(cues) == len(done["segments"])
    assert "".join(cue.splitlines()[2] for cue in cues).strip() == TEXTS["train"]


@supported("whisperlive", "END_OF_AUDIO")
def test_the_package_streams(server: Running, client: Callable[..., Any], tmp_path: Path) -> None:
    """What is sent is committed when the client closes, which waits for that."""
    pcm = tmp_path / "call.raw"
    pcm.write_bytes(read("call").tobytes())
    done = client(server, run="stream", pcm=str(pcm), options={"lang": "en"})
    assert "address on my account" in " ".join(done["committed"])
    times = [(float(segment["start"]), float(segment["end"])) for segment in done["segments"]]
    assert all(start < end for start, end in times)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))
    assert words(" ".join(done["committed"])) == words(" ".join(segment["text"] for segment in done["segments"]))


@supported("whisperlive", "token")
def test_the_package_is_let_in_with_a_key(locked_server: Running, client: Callable[..., Any], tmp_path: Path) -> None:
    """Its client has no option for a key, but its port may be followed by a query."""
    pcm = tmp_path / "hello.raw"
    pcm.write_bytes(read("hello").tobytes())
    refused = client(locked_server, run="stream", pcm=str(pcm), options={})
    assert "401" in refused["refused"]
    done = client(locked_server, query=f"/?token={KEY}", run="stream", pcm=str(pcm), options={"lang": "en"})
    assert words(" ".join(done["committed"]))[1:] == words(TEXTS["hello"])[1:]


@supported("whisperlive", "WAIT")
def test_the_package_waits_when_the_server_is_full(
    start_server: Callable[..., Running], client: Callable[..., Any], tmp_path: Path
) -> None:
    """When the server is full. The client then disconnects by itself."""
    full = start_server(max_sessions=1)
    pcm = tmp_path / "hello.raw"
    pcm.write_bytes(read("hello").tobytes())
    with full.service.admission.session(_Somebody()):
        assert client(full, run="stream", pcm=str(pcm), options={}) == {"refused": "Server is full."}


class _Somebody:
    def drain(self) -> None:
        pass

    def abandon(self) -> None:
        pass
