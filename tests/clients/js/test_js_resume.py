"""The JavaScript client beside a real server, behind a proxy that drops its connections."""

import asyncio
import json
import subprocess
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.live.faulty_proxy import faulty_proxy
from tests.node import require_node
from tests.recordings import TEXTS, read, words
from tests.small_model import SMALL_MODEL, small_settings
from tutti_server.app.server.main import Server, bind, build_app
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

MODULES = Path(__file__).parents[3] / "app" / "static" / "tutti"
SPEED = 3

pytestmark = [pytest.mark.node, pytest.mark.timeout(120)]

OnEvent = Callable[[dict[str, Any]], None]


async def stream(arguments: list[str | Path], on_event: OnEvent) -> list[dict[str, Any]]:
    """Run a program in Node.js, and return the events that it prints."""
    process = await asyncio.create_subprocess_exec(
        # Node.js before 22 has a WebSocket behind this option only.
        *("node", "--experimental-websocket", "--experimental-vm-modules", "--no-warnings", *arguments),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    received = []
    async for line in process.stdout:
        received.append(json.loads(line))
        on_event(received[-1])
    assert await process.wait() == 0
    return received


@pytest.mark.parametrize("program", ["stream.mjs", pytest.param("bare.mjs", marks=pytest.mark.nightly)])
async def test_a_session_survives_cuts_in_the_middle_of_speech(tmp_path: Path, program: str) -> None:
    """No word is lost or repeated, and text that was shown as stable stays, also in a context without a DOM."""
    require_node()
    audio = tmp_path / "audio.pcm"
    audio.write_bytes(read("hello").tobytes() + bytes(32_000) + read("train").tobytes())
    upload = tmp_path / "speech.wav"
    write_wav(upload, read("hello"))
    settings = small_settings(max_ahead_s=600.0, max_final_wait_s=1000.0)
    async with Engine.start(EngineConfig(model=SMALL_MODEL)) as engine:
        server = Server(build_app(settings, engine), settings)
        with bind(settings) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            async with faulty_proxy(f"http://127.0.0.1:{listener.getsockname()[1]}") as proxy:
                cuts: list[float] = []
                n_resumed = 0

                def cut(event: dict[str, Any]) -> None:
                    nonlocal n_resumed
                    n_resumed += event["type"] == "resumed"
                    # On a busy machine there may be no interim in the speech.
                    time_s = event.get({"interim": "end_s", "speech_started": "at_s"}.get(event["type"], ""), -1.0)
                    if time_s > max(cuts, default=-1.0) + 1 and n_resumed == len(cuts):
                        cuts.append(time_s)
                        proxy.drop_connections()

                script = Path(__file__).with_name(program)
                received = await stream([script, MODULES, proxy.url, audio, str(SPEED), upload], cut)
            server.stop()
            await serving
    gaps = [event["gap"] for event in received if event["type"] == "resumed"]
    assert cuts and gaps == [None] * len(cuts)
    ended = [event for event in received if event["type"] == "utterance"]
    assert words(" ".join(event["text"] for event in ended)) == words(f"{TEXTS['hello']} {TEXTS['train']}")
    begun = [event["utterance"] for event in received if event["type"] == "speech_started"]
    assert begun == list(range(len(begun))) == [event["utterance"] for event in ended]
    check_that_text_only_grows(received)
    if program == "bare.mjs":
        check_the_bare_context(received)


def check_the_bare_context(received: list[dict[str, Any]]) -> None:
    """It had nothing of a browser, the source of the session was released, and bytes were uploaded as a file."""
    assert received[0] == {"type": "environment", "has": []}
    assert {"type": "source", "state": "stopped"} in received
    events = [event["event"] for event in received if event["type"] == "file"]
    assert [event["type"] for event in events][-1] == "stopped"
    assert words("".join(event["text"] for event in events if event["type"] == "segment")) == words(TEXTS["hello"])


def write_wav(path: Path, samples: NDArray[np.int16]) -> None:
    with wave.open(str(path), "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(16000)
        writer.writeframes(samples.tobytes())


def check_that_text_only_grows(received: list[dict[str, Any]]) -> None:
    final: dict[int, str] = {}
    shown: dict[int, str] = {}
    for event in received:
        if event["type"] not in ("interim", "segment"):
            continue
        number = event["utterance"]
        before = final.get(number, "")
        if event["type"] == "segment":
            final[number] = before + event["text"]
        now = before + event["text" if event["type"] == "segment" else "stable"]
        assert now.startswith(shown.get(number, "")) or shown[number].startswith(now), (shown[number], now)
        shown[number] = max(now, shown.get(number, ""), key=len)
