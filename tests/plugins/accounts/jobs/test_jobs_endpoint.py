"""Jobs over HTTP: sent in, asked for, cancelled and deleted, by their owners alone."""

import asyncio
import errno
import shutil
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import URL

from tests.app.conftest import Running
from tests.app.dialects.openai.test_files_endpoint import HoldingTranscriber, wav
from tests.app.server.test_openapi import check_fully_described
from tests.app.service.test_models import Shelf
from tests.fakes import FakeTranscriber, said, silence, speech
from tests.made_files import Track, made_file
from tests.plugins.accounts.conftest import accounts
from tests.plugins.accounts.jobs.conftest import ServeJobs
from tutti_server.plugins.accounts.jobs import job_service
from tutti_server.plugins.accounts.jobs.spool import FolderSpool
from tutti_server.plugins.accounts.openapi import JOB

TALK = np.concatenate((silence(0.3), speech([1, 2, 3, 4]), silence(0.5)))
TEXT = said([1, 2, 3, 4])


async def submit(
    http: httpx.AsyncClient, server: Running, key: str = "", idempotency_key: str = "", audio: Any = TALK, **fields: Any
) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    headers |= {"Idempotency-Key": idempotency_key} if idempotency_key else {}
    files = {"file": wav(audio)}
    return await http.post(f"{server.http}/v1/jobs", data=fields, files=files, headers=headers)


async def ended(http: httpx.AsyncClient, server: Running, id_: str) -> dict[str, Any]:
    while True:
        job: dict[str, Any] = (await http.get(f"{server.http}/v1/jobs/{id_}")).json()
        if job["status"] not in ("queued", "running"):
            return job


def recordings(folder: Path) -> list[str]:
    """The recordings that are kept in a folder."""
    return list(FolderSpool(folder).older_than(0.0))


async def texts_of_tracks(http: httpx.AsyncClient, server: Running) -> list[str]:
    """The texts of a job that transcribes all tracks of its recording."""
    job = await ended(http, server, (await submit(http, server, tracks="all")).json()["id"])
    return [each["text"] for each in (await http.get(server.http + job["result_url"])).json()["tracks"]]


async def test_a_job_is_done_and_its_result_is_that_of_the_files_endpoint(
    serve_jobs: ServeJobs, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    server = await serve_jobs()
    answer = await submit(http, server, response_format="verbose_json", nonsense="1")
    assert answer.status_code == 202 and answer.json()["status"] == "queued"
    assert answer.headers["x-tutti-ignored"] == "nonsense"
    job = await ended(http, server, answer.json()["id"])
    assert (job["status"], job["attempts"], job["error"]) == ("done", 1, None)
    assert job["audio_s"] == pytest.approx(len(TALK) / 16_000)
    check_fully_described(job, JOB)
    assert set(await texts_of_tracks(http, server)) == {TEXT}
    result = await http.get(server.http + job["result_url"])
    same = await http.post(
        f"{server.http}/v1/audio/transcriptions", data={"response_format": "verbose_json"}, files={"file": wav(TALK)}
    )
    assert result.json() == same.json() and result.json()["text"] == TEXT
    assert server.metric("tutti_jobs_ended_total", outcome="done") == 2
    while recordings(tmp_path / "state" / "jobs"):
        await http.get(f"{server.http}/healthz")


async def test_the_result_of_a_job_has_the_warnings_of_its_recording_and_all_its_tracks_are_counted(
    serve_jobs: ServeJobs, http: httpx.AsyncClient
) -> None:
    """The warnings are in the header of the files endpoint, as text has no place for them."""
    server = await serve_jobs()
    content = made_file("matroska", "pcm_s16le", 16_000, [Track(samples=TALK), Track(samples=silence(3.0))])
    talk_s = len(TALK) / 16_000
    for fields, audio_s in (({"response_format": "text"}, talk_s), ({"tracks": "all"}, talk_s + 3.0)):
        request: dict[str, Any] = {"data": fields, "files": {"file": content}}
        job = await ended(http, server, (await http.post(f"{server.http}/v1/jobs", **request)).json()["id"])
        assert job["audio_s"] == pytest.approx(audio_s, abs=0.1)
        result = await http.get(server.http + job["result_url"])
        same = await http.post(f"{server.http}/v1/audio/transcriptions", **request)
        assert result.content == same.content
        assert result.headers.get("x-tutti-warnings") == same.headers.get("x-tutti-warnings")
        assert ("x-tutti-warnings" in result.headers) is ("tracks" not in fields)


async def test_a_job_is_done_by_the_model_that_it_names(serve_jobs: ServeJobs, http: httpx.AsyncClient) -> None:
    """A name of no model is refused at once, and not when a worker begins."""
    shelf = Shelf()
    server = await serve_jobs(further=[shelf.model])
    refused = await submit(http, server, model="other")
    assert refused.status_code == 404 and refused.json()["error"]["code"] == "model_not_found"
    for query in ({"model": "large"}, {"model[]": "large"}, {"model": "nova-3"}):
        job = await ended(http, server, (await submit(http, server, **query)).json()["id"])
        assert job["status"] == "done"
    assert shelf.n_loads == 1 and len(shelf.transcriber.windows) == 2 * len(server.transcriber.windows) > 0


async def test_a_job_for_which_there_is_no_room_is_refused_as_a_file_is(
    serve_jobs: ServeJobs, http: httpx.AsyncClient
) -> None:
    """With 429, after which the client waits, and not as by a server that is going down."""
    transcriber = FakeTranscriber(holds=True)
    server = await serve_jobs(transcriber, max_uploads=1, job_workers=0)
    path = f"{server.http}/v1/audio/transcriptions"
    file = asyncio.create_task(http.post(path, files={"file": wav(TALK)}))
    await transcriber.opened.wait()
    for refused in (await submit(http, server), await http.post(path, files={"file": wav(TALK)})):
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert refused.json()["error"]["code"] == "overloaded"
    transcriber.release()
    assert (await file).status_code == 200


async def test_jobs_are_seen_by_the_key_that_made_them(serve_jobs: ServeJobs, http: httpx.AsyncClient) -> None:
    server = await serve_jobs(api_keys="k,l", job_workers=0)
    id_ = (await submit(http, server, "k")).json()["id"]
    own, foreign = ({"Authorization": f"Bearer {key}"} for key in "kl")
    for method, path in (("GET", ""), ("GET", "/result"), ("POST", "/cancel"), ("DELETE", "")):
        assert (await http.request(method, f"{server.http}/v1/jobs/{id_}{path}", headers=foreign)).status_code == 404
        assert (await http.request(method, f"{server.http}/v1/jobs/{id_}{path}")).status_code == 401
    assert (await http.get(f"{server.http}/v1/jobs", headers=foreign)).json()["data"] == []
    (job,) = (await http.get(f"{server.http}/v1/jobs", headers=own)).json()["data"]
    assert (job["id"], job["status"]) == (id_, "queued")


async def test_what_is_no_id_of_a_job_is_not_found(serve_jobs: ServeJobs, http: httpx.AsyncClient, url: URL) -> None:
    """Whatever the database would say of such a text."""
    server = await serve_jobs(job_workers=0, database_url=url.render_as_string(hide_password=False))
    for id_ in ("a", "%00", "a%00b", "0" * 5000):
        paths = [("GET", f"/{id_}"), ("GET", f"/{id_}/result"), ("POST", f"/{id_}/cancel"), ("DELETE", f"/{id_}")]
        for method, path in (*paths, ("GET", f"?after={id_}")):
            answer = await http.request(method, f"{server.http}/v1/jobs{path}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "job_not_found"), path


async def test_jobs_are_listed_in_pages(serve_jobs: ServeJobs, http: httpx.AsyncClient) -> None:
    server = await serve_jobs(job_workers=0)
    ids = [(await submit(http, server)).json()["id"] for _ in range(3)]
    await http.post(f"{server.http}/v1/jobs/{ids[0]}/cancel")
    first = (await http.get(f"{server.http}/v1/jobs?limit=2")).json()
    assert [each["id"] for each in first["data"]] == ids[:0:-1] and first["has_more"]
    rest = (await http.get(f"{server.http}/v1/jobs?limit=2&after={ids[1]}")).json()
    assert [each["id"] for each in rest["data"]] == ids[:1] and not rest["has_more"]
    waiting = (await http.get(f"{server.http}/v1/jobs?status=queued")).json()
    assert [each["id"] for each in waiting["data"]] == ids[:0:-1]
    for limit, status in (("9" * 5000, 400), ("0000001000000", 400), ("000000000000010", 200), ("101", 400)):
        assert (await http.get(f"{server.http}/v1/jobs?limit={limit}")).status_code == status
    # An unknown parameter that is ignored would list the jobs that are done, too.
    refused = await http.get(f"{server.http}/v1/jobs?state=failed")
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "expected limit, after, status, got 'state'"


async def test_a_job_sent_twice_with_one_idempotency_key_is_one(
    serve_jobs: ServeJobs, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    server = await serve_jobs(job_workers=0)
    first, again = [await submit(http, server, idempotency_key="a") for _ in range(2)]
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["id"] == again.json()["id"]
    other = await submit(http, server, idempotency_key="a", language="en")
    assert other.status_code == 409 and other.json()["error"]["code"] == "idempotency_key_reused"
    assert len(recordings(tmp_path / "state" / "jobs")) == 1


async def test_a_full_store_of_recordings_is_called_full(
    serve_jobs: ServeJobs, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was written of the recording is gone, and the next one is taken in where there is room again.

    The operator reads of it on `/readyz`, also where what the store has can be read.
    """
    server = await serve_jobs(job_workers=0)
    service = accounts(server).jobs
    assert service

    def find_no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfileobj", find_no_room)
        answer = await submit(http, server)
        await service._jobs.on_spool(lambda spool: list(spool.older_than(0.0)))
        ready = "ready; the store for the recordings of jobs is full: new ones are refused\n"
        assert (await http.get(f"{server.http}/readyz")).text == ready
    assert answer.status_code == 503 and answer.headers["retry-after"]
    message = "the store for the recordings of jobs is full; try again in 5 s"
    assert (answer.json()["error"]["code"], answer.json()["error"]["message"]) == ("jobs_away", message)
    assert recordings(tmp_path / "state" / "jobs") == []
    assert (await submit(http, server)).status_code == 202
    assert (await http.get(f"{server.http}/readyz")).text == "ready\n"


async def test_jobs_are_measured_while_the_store_of_recordings_hangs(
    serve_jobs: ServeJobs, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_service, "MEASURE_EVERY_S", 0.02)
    server = await serve_jobs(job_workers=0)
    job = (await submit(http, server)).json()
    while server.metric("tutti_jobs_queued") != 1:
        await http.get(f"{server.http}/healthz")
    service = accounts(server).jobs
    assert service
    jobs, hangs, goes_on = service._jobs, threading.Event(), threading.Event()

    def hang(self: FolderSpool, id_: str, file: object) -> None:
        hangs.set()
        goes_on.wait(60)

    monkeypatch.setattr(FolderSpool, "put", hang)
    jobs.spool_is_away = True
    try:
        await asyncio.to_thread(hangs.wait, 20)
        await http.post(f"{server.http}/v1/jobs/{job['id']}/cancel")
        while server.metric("tutti_jobs_queued") != 0:
            await http.get(f"{server.http}/healthz")
    finally:
        goes_on.set()


async def test_a_running_job_is_cancelled_and_deleted(serve_jobs: ServeJobs, http: httpx.AsyncClient) -> None:
    transcriber = HoldingTranscriber()
    server = await serve_jobs(transcriber, job_lease_s=0.3)
    long = np.concatenate((TALK, silence(2.0), TALK))
    ids = [(await submit(http, server, audio=long)).json()["id"] for _ in range(2)]
    await transcriber.held.wait()
    cancelled = (await http.post(f"{server.http}/v1/jobs/{ids[0]}/cancel")).json()
    assert cancelled["status"] == "cancelled"
    assert (await http.delete(f"{server.http}/v1/jobs/{ids[1]}")).json()["deleted"]
    while transcriber.n_open:
        await http.get(f"{server.http}/healthz")
    assert (await http.get(f"{server.http}/v1/jobs/{ids[1]}")).status_code == 404
    refused = await http.get(f"{server.http}/v1/jobs/{ids[0]}/result")
    assert refused.status_code == 409 and "got one that is cancelled" in refused.json()["error"]["message"]
    assert server.metric("tutti_jobs_ended_total", outcome="done") == 0


async def test_a_recording_that_is_none_fails_its_job(serve_jobs: ServeJobs, http: httpx.AsyncClient) -> None:
    server = await serve_jobs()
    answer = await http.post(f"{server.http}/v1/jobs", files={"file": b"no audio"})
    job = await ended(http, server, answer.json()["id"])
    assert (job["status"], job["error"]["code"], job["attempts"]) == ("failed", "invalid_file", 1)


async def test_parameters_of_the_address_are_named_as_ignored(serve_jobs: ServeJobs, http: httpx.AsyncClient) -> None:
    server = await serve_jobs(job_workers=0)
    answer = await http.post(f"{server.http}/v1/jobs?language=fr", data={"zoom": "3"}, files={"file": wav(TALK)})
    assert (answer.status_code, answer.headers["x-tutti-ignored"]) == (202, "language, zoom")


BAD_FIELDS = [
    ({"temperature": "9"}, "temperature: expected a number from 0 to 1, got '9'"),
    ({"stream": "true"}, "stream: expected false, as"),
    ({"language": "klingon"}, "language: expected one of the model's languages (en"),
    ({"task": "sing"}, "task: expected one of transcribe, translate, got 'sing'"),
    ({"url": "https://example.org/a.wav"}, "file: expected either an audio file or url, got both"),
    ({"callback": "https://example.org/"}, "callback: not offered, as its operator has not set TUTTI_JOB_SECRET"),
]


async def test_bad_fields_are_refused(serve_jobs: ServeJobs, http: httpx.AsyncClient, tmp_path: Path) -> None:
    server = await serve_jobs(job_workers=0)
    for fields, message in BAD_FIELDS:
        refused = await submit(http, server, **fields)
        assert refused.status_code == 400
        assert refused.json()["error"]["message"].startswith(message)
    url, rules = {"url": "https://example.org/a.wav"}, {"text_rules": b'{"redact": ["card"]}'}
    refused = await http.post(f"{server.http}/v1/jobs", data=url, files=rules)
    assert refused.json()["error"]["message"] == "text_rules: expected text, got a file"
    assert not (tmp_path / "state" / "jobs").exists()


async def test_a_server_without_jobs_says_so(serve: Any, http: httpx.AsyncClient, tmp_path: Path) -> None:
    server = await serve(data_folder=str(tmp_path / "state"))
    for method, path in (("GET", ""), ("POST", ""), ("GET", "/a"), ("DELETE", "/a"), ("POST", "/a/cancel")):
        refused = await http.request(method, f"{server.http}/v1/jobs{path}")
        assert refused.status_code == 404 and refused.json()["error"]["code"] == "no_jobs"
    assert not (tmp_path / "state").exists()


async def test_a_client_that_is_refused_at_once_reads_why(serve_jobs: ServeJobs, http: httpx.AsyncClient) -> None:
    """It is let finish sending, also where the connection ends then, as those of many proxies do."""
    server = await serve_jobs(api_keys="k", job_workers=0)
    large = {"file": bytes(20_000_000)}
    refused = await http.post(f"{server.http}/v1/jobs", files=large, headers={"Connection": "close"})
    assert refused.status_code == 401


async def test_a_stopping_gateway_gives_its_jobs_back(serve_jobs: ServeJobs, http: httpx.AsyncClient) -> None:
    """Another one does them, and the attempt does not count."""
    transcriber = HoldingTranscriber()
    first = await serve_jobs(transcriber, job_attempts=1)
    long = np.concatenate((TALK, silence(2.0), TALK))
    id_ = (await submit(http, first, audio=long)).json()["id"]
    await transcriber.held.wait()
    first.server.stop()
    await first.task
    second = await serve_jobs(FakeTranscriber(), job_attempts=1)
    job = await ended(http, second, id_)
    assert (job["status"], job["attempts"]) == ("done", 1)
