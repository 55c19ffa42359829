"""The JavaScript client beside a real server, behind a proxy that drops its connections."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.live.faulty_proxy import faulty_proxy
from tests.app.conftest import running
from tests.fakes import FakeTranscriber, said, silence, speech
from tests.node import require_node
from tutti_server.app.server.plugins import make_settings

MODULES = Path(__file__).parents[3] / "app" / "static" / "tutti"
SPEED = 3
MOST_CUTS = 2
"""A later one may come when the session has ended already."""
UTTERANCES = [range(first, first + 6) for first in (0, 6, 12)]

pytestmark = [pytest.mark.node, pytest.mark.timeout(120)]

OnEvent = Callable[[dict[str, Any]], None]


async def stream(arguments: list[str | Path], on_event: OnEvent) -> list[dict[str, Any]]:
    """Run a program in Node.js, and return the events that it prints."""
    process = await asyncio.create_subprocess_exec(
        # Node.js before 22 has a WebSocket behind this option only.
        *("node", "--experimental-websocket", "--no-warnings", *arguments),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    received = []
    async for line in process.stdout:
        received.append(json.loads(line))
        on_event(received[-1])
    assert await process.wait() == 0
    return received


@pytest.mark.parametrize("key", ["", "k"], ids=["no-key", "client-secrets"])
async def test_a_session_survives_cuts_in_the_middle_of_speech(tmp_path: Path, key: str) -> None:
    """No word is lost or repeated, and text that was shown as stable stays; also when its client secret has ended."""
    require_node()
    audio = tmp_path / "audio.pcm"
    parts = [part for words in UTTERANCES for part in (speech(words), silence(1.0))]
    audio.write_bytes((np.concatenate(parts) * 32767).astype("<i2").tobytes())
    cuts: list[float] = []
    n_resumed = 0

    def cut(event: dict[str, Any]) -> None:
        nonlocal n_resumed
        n_resumed += event["type"] == "resumed"
        # On a busy machine there may be no interim in the speech.
        time_s = event.get({"interim": "end_s", "speech_started": "at_s"}.get(event["type"], ""), -1.0)
        is_early = len(cuts) < MOST_CUTS and n_resumed == len(cuts)
        if is_early and time_s > max(cuts, default=-1.0) + 1:
            cuts.append(time_s)
            proxy.drop_connections()

    async with (
        running(make_settings({"port": 0, "api_keys": key}), FakeTranscriber()) as server,
        faulty_proxy(server.http) as proxy,
    ):
        script = Path(__file__).with_name("stream.mjs")
        received = await stream([script, MODULES, proxy.url, audio, str(SPEED), key], cut)
    gaps = [event["gap"] for event in received if event["type"] == "resumed"]
    assert cuts and gaps == [None] * len(cuts)
    ended = [event for event in received if event["type"] == "utterance"]
    assert [event["text"].strip() for event in ended] == [said(words) for words in UTTERANCES]
    begun = [event["utterance"] for event in received if event["type"] == "speech_started"]
    assert begun == list(range(len(begun))) == [event["utterance"] for event in ended]
    check_that_text_only_grows(received)


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
