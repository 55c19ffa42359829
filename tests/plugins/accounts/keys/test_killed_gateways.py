"""Audio is counted once, although a gateway is killed in the middle of a session that goes on at another one."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import URL
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.app.cli.child import Command, running
from tests.app.conftest import until
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
def gateway(url: URL, folder: Path) -> Iterator[tuple[Command, str]]:
    """A process with one gateway, and its address. It is stopped in order if it has not been killed."""
    arguments = (url.render_as_string(hide_password=False), folder, "127.0.0.1")
    with running("-m", "tests.plugins.accounts.jobs.gateway_process", *arguments, folder=REPOSITORY) as process:
        yield process, process.wait_for("127.0.0.1:").strip()
        process.signal(signal.SIGTERM)
        process.end()


async def used(database: Database) -> tuple[float, int]:
    entries = await database.run(usage.used, date.min, date.max)
    return sum(each.audio_s for each in entries), sum(each.n for each in entries)


@pytest.mark.nightly
async def test_a_session_that_goes_on_at_another_gateway_is_counted_once(
    database: Database, url: URL, tmp_path: Path
) -> None:
    """The client sends the audio without final text again."""
    key, _ = await database.run(key_records.create, ApiKey(name="acme"))
    headers = {"Authorization": f"Bearer {key}"}
    with gateway(url, tmp_path) as (process, address):
        async with connect(f"ws://{address}/v1/stream", additional_headers=headers) as socket:
            await socket.send(json.dumps(START))
            await socket.send(pcm(TURN))
            resume_from_s = (await until(socket, "utterance"))["resume_from_s"][0]
            await socket.send(pcm(TURN[: len(TURN) // 4]))
            while (await used(database))[0] < resume_from_s:
                pass
            process.signal(signal.SIGKILL)
            with pytest.raises(ConnectionClosed):
                await until(socket, "never")
    with gateway(url, tmp_path) as (_, address):
        async with connect(f"ws://{address}/v1/stream", additional_headers=headers) as socket:
            await socket.send(json.dumps({**START, "resume": {"from_s": resume_from_s}}))
            await socket.send(pcm(TALK[round(resume_from_s * SAMPLE_RATE) :]))
            await socket.send('{"type": "stop"}')
            await until(socket, "stopped")
    used_s, n_uses = await used(database)
    assert used_s == pytest.approx(len(TALK) / SAMPLE_RATE, abs=0.01)
    assert n_uses == 2
