"""`GET /v1/usage`, and the metrics of single keys, on a real server."""

import asyncio
import json
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from websockets.asyncio.client import connect

from tests.app.conftest import Running, Serve
from tests.fakes import FakeTranscriber, pcm, silence, speech
from tests.plugins.accounts.conftest import Operator, accounts
from tests.plugins.accounts.keys.test_scopes import AUDIO, bearer
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.plugins.accounts.keys import usage_counter, usage_endpoint
from tutti_server.plugins.accounts.keys.key_metrics import KeyMetrics

TALK = np.concatenate((speech([1, 2]), silence(1.0)))
YESTERDAY, TODAY = "2026-05-16", "2026-05-17"


class Noon(datetime):
    """A clock that stands, so that no midnight comes within a test."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "Noon":
        """Always the same time of `TODAY`."""
        return cls.fromisoformat(f"{TODAY}T12:00:00").replace(tzinfo=tz)


@pytest.fixture(autouse=True)
def standing_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (usage_counter, usage_endpoint):
        monkeypatch.setattr(module, "datetime", Noon)


async def speak(server: Running, key: str, **start: Any) -> None:
    """Have a live session to its end."""
    async with connect(server.stream, additional_headers=bearer(key)) as socket:
        await socket.send(json.dumps({"type": "start", "audio": {"encoding": "pcm_f32le"}, **start}))
        await socket.send(pcm(TALK))
        await socket.send('{"type": "stop"}')
        async for _ in socket:
            pass


async def usage_of(server: Running, bearer_key: str, **query: str) -> httpx.Response:
    return await server.get("/v1/usage", headers=bearer(bearer_key), params=query)


@pytest.mark.default
async def test_a_key_sees_its_own_usage_and_the_operator_that_of_all(operator: Operator) -> None:
    acme, other, boss = operator.create("acme"), operator.create("other"), operator.create("boss", "usage")
    server = await operator.serve(api_keys="plain")
    for key in (acme, acme, "plain"):
        answer = await server.post("/v1/listen", headers=bearer(key), content=AUDIO)
        assert answer.status_code == 200
    file_s = answer.json()["metadata"]["duration"]
    await speak(server, acme)
    own = (await usage_of(server, acme)).json()
    assert own["from"] == f"{TODAY[:8]}01" and own["to"] == TODAY
    assert {(each["key"], each["day"]) for each in own["data"]} == {("acme", TODAY)}
    assert {each["kind"]: (each["audio_s"], each["n"]) for each in own["data"]} == {
        "file": (pytest.approx(2 * file_s, abs=0.01), 2),
        "live": (pytest.approx(len(TALK) / 16_000, abs=0.01), 1),
    }
    assert (await usage_of(server, acme, key="acme")).json() == own
    assert (await usage_of(server, other)).json()["data"] == []
    everyone = (await usage_of(server, boss)).json()["data"]
    assert {(each["key"], each["key_id"][:4]) for each in everyone} == {("acme", "key_"), (None, "unna")}
    assert (await usage_of(server, boss, key="acme")).json() == own
    assert (await usage_of(server, boss, key=own["data"][0]["key_id"])).json() == own
    assert (await usage_of(server, boss, **{"from": YESTERDAY, "to": YESTERDAY})).json()["data"] == []


async def test_what_else_is_asked_for_is_refused(operator: Operator) -> None:
    acme, boss = operator.create("acme"), operator.create("boss", "usage")
    server = await operator.serve(api_keys="plain")
    for key, query, status, message in (
        ("x", {}, 401, "a valid API key is needed"),
        ("plain", {}, 403, "expected a key with a name"),
        (acme, {"key": "boss"}, 403, "key: expected acme, or a key with the scope usage, got 'boss'"),
        (boss, {"key": "nobody"}, 404, "expected the name or the id of a key, got 'nobody'"),
        (boss, {"days": "3"}, 400, "expected from, to, key, got 'days'"),
        (boss, {"from": "today"}, 400, "from: expected a day such as"),
        (boss, {"from": "2026-01-02", "to": "2026-01-01"}, 400, "from: expected 1 to 366 days up to 2026-01-01"),
        (boss, {"from": "2024-01-01", "to": "2026-01-01"}, 400, "from: expected 1 to 366 days"),
    ):
        answer = await usage_of(server, key, **query)
        assert answer.status_code == status and message in answer.json()["error"]["message"]


@pytest.fixture
def keys_file(tmp_path: Path) -> str:
    file = tmp_path / "keys.toml"
    file.write_text('[acme]\nkey = "a"\n[boss]\nkey = "b"\nscopes = ["usage"]\n')
    return str(file)


@pytest.mark.default
async def test_keys_of_the_file_are_counted_in_the_database_of_jobs(
    serve: Serve, keys_file: str, tmp_path: Path
) -> None:
    """A database of keys is not needed."""
    server = await serve(keys_file=keys_file, jobs=True, data_folder=str(tmp_path))
    await speak(server, "a")
    (own,) = (await usage_of(server, "a")).json()["data"]
    assert (own["key_id"], own["key"], own["kind"], own["n"]) == ("acme", "acme", "live", 1)
    assert own["audio_s"] == pytest.approx(len(TALK) / 16_000, abs=0.01)
    assert (await usage_of(server, "b", key="acme")).json()["data"] == [own]


@pytest.mark.default
async def test_without_a_database_keys_of_the_file_are_counted_in_the_metrics(serve: Serve, keys_file: str) -> None:
    """Nothing keeps their usage, which a client is told."""
    server = await serve(keys_file=keys_file, api_keys="plain")
    await speak(server, "a")
    for key in ("a", "plain"):
        answer = await server.post("/v1/listen", headers=bearer(key), content=AUDIO)
        assert answer.status_code == 200
    page = (await server.get("/metrics")).text
    file_s = answer.json()["metadata"]["duration"]
    audio = {line.partition(" ")[0]: float(line.split()[1]) for line in page.splitlines() if "tutti_key_" in line[:10]}
    assert audio['tutti_key_audio_seconds_total{key="acme",kind="live"}'] == pytest.approx(len(TALK) / 16_000, abs=0.01)
    for key in ("acme", "other"):
        assert audio[f'tutti_key_audio_seconds_total{{key="{key}",kind="file"}}'] == pytest.approx(file_s, abs=0.01)
        assert audio[f'tutti_key_uses_total{{key="{key}",kind="file"}}'] == 1.0
    refusal = await usage_of(server, "a")
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (404, "not_counted")


async def test_the_series_of_keys_begin_before_their_first_use(operator: Operator, keys_file: str) -> None:
    """A series that begins with its first use hides that from `increase()`, by which operators bill."""
    operator.create("other one")
    server = await operator.serve(keys_file=keys_file)
    page = (await server.get("/metrics")).text
    for key in ("acme", "boss", "other one", "other"):
        for kind in ("live", "file", "job"):
            for name in ("tutti_key_audio_seconds_total", "tutti_key_uses_total"):
                assert f'{name}{{key="{key}",kind="{kind}"}} 0.0\n' in page


async def test_a_session_that_resumes_counts_from_there(operator: Operator) -> None:
    """Not the audio before that time, which is there for the speech detector."""
    acme = operator.create("acme")
    server = await operator.serve()
    await speak(server, acme, resume={"from_s": 10.5, "audio_from_s": 10.0})
    (entry,) = (await usage_of(server, acme)).json()["data"]
    assert entry["audio_s"] == pytest.approx(len(TALK) / 16_000 - 0.5, abs=0.01)


async def test_metrics_name_the_oldest_keys_only(operator: Operator) -> None:
    """The others are counted together, so that the number of series is bounded."""
    first, second = operator.create("first"), operator.create("second")
    server = await operator.serve(max_key_labels=1, api_keys="plain")
    for key in (second, first, "plain"):
        await speak(server, key)
    seconds = pytest.approx(len(TALK) / 16_000, abs=0.01)
    assert server.metric("tutti_key_audio_seconds_total", key="first", kind="live") == seconds
    assert server.metric("tutti_key_audio_seconds_total", key="other", kind="live") == pytest.approx(
        2 * len(TALK) / 16_000, abs=0.02
    )
    assert server.metric("tutti_key_uses_total", key="other", kind="live") == 2
    assert server.metric("tutti_key_audio_seconds_total", key="second", kind="live") == 0


@pytest.mark.default
async def test_a_job_of_a_key_that_was_withdrawn_meanwhile_is_counted_under_its_name(operator: Operator) -> None:
    acme, transcriber = operator.create("acme"), FakeTranscriber(holds=True)
    server = await operator.serve(transcriber=transcriber, jobs=True)
    directory = accounts(server).directory
    assert directory
    async with asyncio.timeout(30), httpx.AsyncClient(base_url=server.http, timeout=30) as client:
        await client.post("/v1/jobs", headers=bearer(acme), files={"file": AUDIO})
        await transcriber.opened.wait()
        operator.withdraw("acme")
        await directory.refresh()
        transcriber.release()
        while not server.metric("tutti_jobs_ended_total", outcome="done"):
            await client.get("/healthz")
    assert server.metric("tutti_key_uses_total", key="acme", kind="job") == 1


def test_a_label_stays_when_its_key_is_withdrawn_and_their_number_is_bounded() -> None:
    registry = CollectorRegistry()
    keys = [ApiKey(name=name) for name in ("a", "b", "c")]
    metrics = KeyMetrics(registry)
    metrics.name_first(2, lambda: keys)
    a, b, c = keys
    metrics.note(a, "live", 1.0, is_new=True)
    del keys[0]
    for key in (c, b, a):
        metrics.note(key, "live", 1.0, is_new=False)
    labels = {
        sample.labels["key"] for family in registry.collect() for sample in family.samples if "key" in sample.labels
    }
    assert labels == {"a", "c", "other"}
