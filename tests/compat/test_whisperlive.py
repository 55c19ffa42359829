"""WhisperLive: its protocol without a network, and its own client against a real server."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.conformance import approximated, supported
from tests.compat.conftest import Running
from tests.compat.exchange import cases, replay
from tests.recordings import read, words
from tutti_server.app.dialects.whisperlive.wire import WhisperLive
from tutti_server.app.media.pcm import Samples

CLIENT = Path(__file__).parent / "python" / "whisperlive.py"
# Where `make setup` puts the package: its requirements (torch, openvino, ...) are those of its server.
PACKAGE = Path(sys.prefix) / "whisper-live"
CLIENT_TIMEOUT_S = 60
FRAME_BYTES = 4096 * 4
SHOWS = {
    "session": [
        supported("whisperlive", "SERVER_READY"),
        supported("whisperlive", "send_last_n_segments"),
        supported("whisperlive", "float32 audio"),
        supported("whisperlive", "segments"),
        supported("whisperlive", "END_OF_AUDIO"),
        approximated(
            "whisperlive", "model", how="with one model any name is accepted; a warning names the model that answers"
        ),
    ],
    "words": [supported("whisperlive", "word_timestamps")],
}
"""What of the options an exchange shows."""


def as_float32(samples: Samples) -> list[bytes]:
    data = samples.astype("<f4").tobytes()
    return [data[at : at + FRAME_BYTES] for at in range(0, len(data), FRAME_BYTES)]


@pytest.mark.parametrize("path", cases("whisperlive", SHOWS))
def test_golden_exchanges(path: Path) -> None:
    replay(path, WhisperLive(), as_float32)


@supported("whisperlive", "END_OF_AUDIO")
def test_the_package_streams(server: Running, tmp_path: Path) -> None:
    """What is sent is committed when the client closes, which waits for that."""
    assert PACKAGE.is_dir(), "whisper-live is missing: run `make setup`"
    pcm = tmp_path / "call.raw"
    pcm.write_bytes(read("call").tobytes())
    host, _, port = server.address.partition(":")
    ran = subprocess.run(
        [sys.executable, CLIENT, json.dumps({"host": host, "port": port, "pcm": str(pcm), "options": {"lang": "en"}})],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CLIENT_TIMEOUT_S,
        env=os.environ | {"PYTHONPATH": str(PACKAGE)},
    )
    assert ran.returncode == 0, ran.stderr
    done = json.loads(ran.stdout)
    assert "address on my account" in " ".join(done["committed"])
    times = [(float(segment["start"]), float(segment["end"])) for segment in done["segments"]]
    assert all(start < end for start, end in times)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))
    assert words(" ".join(done["committed"])) == words(" ".join(segment["text"] for segment in done["segments"]))
