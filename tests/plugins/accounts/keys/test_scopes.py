"""Every endpoint of every dialect asks for a key with its scope."""

import asyncio
import json

import httpx
import numpy as np
import pytest
from sqlalchemy import text
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.app.conftest import Running, Serve
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.fakes import speech
from tests.plugins.accounts.conftest import Operator, accounts
from tutti_server.app.service.scopes import SCOPES, read_scopes

AUDIO = wav(np.concatenate((speech([1, 2]), np.zeros(16_000, np.float32))))
LIVE = ["/v1/stream", "/v1/listen", "/v2/listen?model=flux-general-en", "/v1/realtime", "/v1/calls/CA1", "/"]
"""Sockets that show their key in a header."""


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def status_of_socket(server: Running, path: str, key: str) -> int:
    """101 if the server takes the WebSocket."""
    try:
        async with connect(f"ws://{server.address}{path}", additional_headers=bearer(key)):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


async def test_live_sessions_need_the_scope_live(operator: Operator) -> None:
    live, files = operator.create("speaks", "live"), operator.create("uploads", "files", "jobs")
    server = await operator.serve()
    for path in LIVE:
        statuses = [await status_of_socket(server, path, key) for key in (live, files, "tutti_x", "x")]
        assert statuses == [101, 403, 401, 401], path
    for key, expected in ((live, 101), (files, 403), ("x", 401)):
        assert await status_of_socket(server, f"/v1/twilio/{key}", "unused") == expected
    assert server.metric("tutti_refused_total", reason="scope") == len(LIVE) + 1
    async with connect(f"ws://{server.address}/v1/twilio") as call:
        start = {"event": "start", "start": {"streamSid": "M", "callSid": "C", "customParameters": {"token": files}}}
        await call.send(json.dumps(start))
        with pytest.raises(ConnectionClosed):
            await call.recv()
        assert (call.close_code, call.close_reason) == (1008, "scope")
    for path in ("/v1/realtime/client_secrets", "/v1/realtime/transcription_sessions", "/v1/auth/grant"):
        answers = [(await server.post(path, headers=bearer(key))).status_code for key in (live, files, "x")]
        assert answers == [200, 403, 401], path
    withdraw = "/v1/realtime/client_secrets/withdraw"
    assert (await server.post(withdraw, headers=bearer(files))).status_code == 403


async def test_pages_of_any_origin_and_name_may_use_keys_of_the_database(operator: Operator) -> None:
    key = operator.create("speaks", "live")
    server = await operator.serve()
    headers = bearer(key) | {"origin": "https://app.example", "host": "captions.example"}
    answer = await server.post("/v1/realtime/client_secrets", headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.default
async def test_files_need_the_scope_files(operator: Operator) -> None:
    live, files = operator.create("speaks", "live"), operator.create("uploads", "files")
    server = await operator.serve()
    for key, expected in ((files, 200), (live, 403), ("x", 401)):
        answer = await server.post("/v1/audio/transcriptions", headers=bearer(key), files={"file": AUDIO})
        assert answer.status_code == expected
        answer = await server.post("/v1/audio/translations", headers=bearer(key), files={"file": AUDIO})
        assert answer.status_code == (400 if expected == 200 else expected), "this model cannot translate"
        answer = await server.post("/v1/listen", headers=bearer(key), content=AUDIO)
        assert answer.status_code == expected
        assert expected != 403 or "the key speaks has live" in answer.json()["err_msg"]
        models = await server.get("/v1/models", headers=bearer(key))
        assert models.status_code == (401 if key == "x" else 200)


@pytest.mark.default
@pytest.mark.parametrize("query", ["callback=https://h/", "callback[]=https://h/", "callback=https://h/&callback="])
async def test_a_callback_needs_the_scope_jobs_however_it_is_written(operator: Operator, query: str) -> None:
    files, jobs = operator.create("uploads", "files"), operator.create("works", "jobs")
    server = await operator.serve(jobs=True, callback_hosts="h")
    answers = [await server.post(f"/v1/listen?{query}", headers=bearer(key), content=AUDIO) for key in (files, jobs)]
    assert [answer.status_code for answer in answers] == [403, 200]
    stored = operator.database.run_here(lambda c: c.execute(text("SELECT options FROM tutti_jobs")).scalars().all())
    assert [json.loads(each) for each in stored] == [{"query": []}], "the address may hold a password"


async def test_rooms_need_the_scope_rooms(operator: Operator) -> None:
    server = await operator.serve()
    for name, scopes, expected in (("with", ("live", "rooms"), "started"), ("without", ("live",), "error")):
        key = operator.create(name, *read_scopes(scopes))
        directory = accounts(server).directory
        assert directory
        await directory.refresh()
        async with connect(server.stream, additional_headers=bearer(key)) as socket:
            await socket.send(json.dumps({"type": "start", "audio": {"sample_rate": 16000}, "room": {}}))
            answer = json.loads(await socket.recv())
            assert answer["type"] == expected
            assert expected == "started" or answer["code"] == "room_not_allowed"


async def test_metrics_are_open_unless_the_operator_asks_for_a_key(operator: Operator) -> None:
    metrics, client_key = operator.create("prometheus", "metrics"), operator.create("acme")
    opened = await operator.serve()
    closed = await operator.serve(metrics_need_key=True)
    assert (await opened.get("/metrics")).status_code == 200
    for key, expected in ((metrics, 200), (client_key, 403), ("x", 401)):
        assert (await closed.get("/metrics", headers=bearer(key))).status_code == expected
    assert (await closed.get("/metrics")).status_code == 401


async def test_a_server_notices_keys_while_it_runs(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A withdrawn key opens nothing, nor do the client secrets that it made; open sessions go on."""
    monkeypatch.setattr("tutti_server.plugins.accounts.keys.key_directory.POLL_S", 0.01)
    server = await operator.serve()
    key = operator.create("acme")
    async with asyncio.timeout(30), httpx.AsyncClient(base_url=server.http) as client:
        while (answer := await client.post("/v1/realtime/client_secrets", headers=bearer(key))).status_code != 200:
            pass
        secret = answer.json()["value"]
        assert await status_of_socket(server, "/v1/stream", secret) == 101
        async with connect(server.stream, additional_headers=bearer(key)) as socket:
            operator.withdraw("acme")
            while await status_of_socket(server, "/v1/stream", key) != 401:
                pass
            assert await status_of_socket(server, "/v1/stream", secret) == 401
            await socket.send(json.dumps({"type": "start", "audio": {"sample_rate": 16000}}))
            assert json.loads(await socket.recv())["type"] == "started"


@pytest.mark.default
async def test_limits_of_a_key_are_those_of_its_record(operator: Operator) -> None:
    """Its minutes are counted in the database, so that a restart gives it no new ones."""
    one, short = operator.create("one", sessions=1), operator.create("short", minutes_per_month=0.01)
    server = await operator.serve()
    async with connect(server.stream, additional_headers=bearer(one)):
        assert await status_of_socket(server, "/v1/stream", one) == 429
    answer = await server.post("/v1/listen", headers=bearer(short), content=AUDIO)
    assert answer.status_code == 200
    usage = accounts(server).usage
    assert usage
    await usage.save()
    assert (await server.post("/v1/listen", headers=bearer(short), content=AUDIO)).status_code == 429
    other = await operator.serve()
    assert await status_of_socket(other, "/v1/stream", short) == 429


async def test_readyz_says_that_the_database_is_away(serve: Serve) -> None:
    """And a key that may be valid gets 503 meanwhile, in every dialect; any other one gets 401."""
    server = await serve(database_keys=True, database_url="postgresql://nobody@127.0.0.1:1/none", api_keys="k")
    ready = await server.get("/readyz")
    assert ready.status_code == 200 and "without the database: new keys are refused" in ready.text
    for path in ("/v1/models", "/v1/usage"):
        assert (await server.get(path, headers=bearer("tutti_x"))).status_code == 503
    assert (await server.post("/v1/listen", headers=bearer("tutti_x"))).json()["err_code"] == "SERVICE_UNAVAILABLE"
    for path in LIVE:
        assert [await status_of_socket(server, path, key) for key in ("tutti_x", "x", "k")] == [503, 401, 101], path


def test_a_scope_that_does_not_exist_is_refused() -> None:
    for names in (["live", "video"], [1]):
        with pytest.raises(ValueError, match=f"expected {', '.join(SCOPES)}, got "):
            read_scopes(names)
    with pytest.raises(ValueError, match="expected at least one of"):
        read_scopes([])
