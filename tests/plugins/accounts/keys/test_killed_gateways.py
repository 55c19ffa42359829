"""Audio is counted once, although a gateway is killed in the middle of a session that goes on at another one."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import URL
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.fakes import pcm, silence, speech
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.plugins.accounts.database.database import Database
from tutti_server.plugins.accounts.keys import key_records, usage

REPOSITORY = Path(__file__).parents[4]
START: dict[str, Any] = {"type": "start", "audio": {"encoding": "pcm_f32le"}, "resumes": True}
TURN = np.concatenate((speech([1, 2, 3]), silence(1.0)))
TALK = np.concatenate((TURN, TURN, TURN))


@contextmanager
def gateway(url: URL) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process with one gateway, and its address. It is stopped in order if it has not been killed."""
    command = [
        sys.executable,
        "-m",
        "tests.plugins.accounts.keys.gateway_process",
        url.render_as_string(hide_password=False),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env=environment) as process:
        try:
            assert process.stdout
            yield process, process.stdout.readline().strip()
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        finally:
            process.kill()


async def hear_until(socket: ClientConnection, type_: str) -> dict[str, Any]:
    while (message := json.loads(await socket.recv()))["type"] != type_:
        pass
    return dict(message)


async def used(database: Database) -> tuple[float, int]:
    entries = await database.run(usage.used, date.min, date.max)
    return sum(each.audio_s for each in entries), sum(each.n for each in entries)


@pytest.mark.nightly
async def test_a_session_that_goes_on_at_another_gateway_is_counted_once(database: Database, url: URL) -> None:
    """The client sends the audio without final text again."""
    key, _ = await database.run(key_records.create, ApiKey(name="acme"))
    headers = {"Authorization": f"Bearer {key}"}
    with gateway(url) as (process, address):
        async with connect(f"ws://{address}/v1/stream", additional_headers=headers) as socket:
            await socket.send(json.dumps(START))
            await socket.send(pcm(TURN))
            resume_from_s = (await hear_until(socket, "utterance"))["resume_from_s"][0]
            await socket.send(pcm(TURN[: len(TURN) // 4]))
            while (await used(database))[0] < resume_from_s:
                pass
            process.kill()
            with pytest.raises(ConnectionClosed):
                await hear_until(socket, "never")
    with gateway(url) as (_, address):
        async with connect(f"ws://{address}/v1/stream", additional_headers=headers) as socket:
            await socket.send(json.dumps({**START, "resume": {"from_s": resume_from_s}}))
            await socket.send(pcm(TALK[round(resume_from_s * SAMPLE_RATE) :]))
            await socket.send('{"type": "stop"}')
            await hear_until(socket, "stopped")
    used_s, n_uses = await used(database)
    assert used_s == pytest.approx(len(TALK) / SAMPLE_RATE, abs=0.01)
    assert n_uses == 2
