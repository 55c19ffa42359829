"""Uploads for which the server has no room, and files that would take too much of it."""

import asyncio
import errno
import logging
import os
import tempfile
from types import SimpleNamespace

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Message

from tests.app.conftest import Running, Serve
from tests.app.dialects.openai.test_files_endpoint import TALK, wav
from tests.app.media.test_file_decoder import header
from tests.fakes import silence
from tutti_server.app.dialects.openai.files_endpoint import FileEndpoint
from tutti_server.app.errors import RequestError
from tutti_server.app.files.uploads import Upload
from tutti_server.app.service.settings import Settings

ENDPOINTS = ("/v1/audio/transcriptions", "/v1/listen", "/v1/listen?multichannel=true")
SMALL, LARGE = wav(TALK[::2], 8_000), wav(silence(60.0))
"""Files below and above the size at which uploads are moved to the disk while they arrive. Both must be decoded."""


async def post(server: Running, path: str, content: bytes) -> httpx.Response:
    if path == ENDPOINTS[0]:
        return await server.post(path, files={"file": ("talk.wav", content)})
    return await server.post(path, content=content, headers={"content-type": "audio/wav"})


@pytest.mark.parametrize(
    ("path", "content", "number", "status"),
    [
        (ENDPOINTS[0], SMALL, errno.ENOSPC, 507),
        (ENDPOINTS[0], LARGE, errno.EMFILE, 503),
        (ENDPOINTS[1], LARGE, errno.EDQUOT, 507),
        (ENDPOINTS[1], SMALL, errno.EMFILE, 503),
        (ENDPOINTS[2], LARGE, errno.EFBIG, 507),
    ],
)
async def test_an_upload_without_room_is_refused(
    serve: Serve,
    path: str,
    content: bytes,
    number: int,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The disk is full, or there are too many open files. The next upload is accepted when there is room."""

    def rollover(self: object) -> None:
        raise OSError(number, os.strerror(number))

    server = await serve()
    with monkeypatch.context() as patches:
        patches.setattr(tempfile.SpooledTemporaryFile, "rollover", rollover)
        refused = await post(server, path, content)
    assert refused.status_code == status
    assert "the server has no room" in refused.text
    assert ("retry-after" in refused.headers) == (status == 503)
    assert (await post(server, path, content)).status_code == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_form_that_cannot_be_parsed_warns_of_nothing(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """The answer says what is wrong with it, and has the id of the line in the log."""
    caplog.set_level(logging.INFO)
    headers = {"content-type": "multipart/form-data; boundary=b"}
    refused = await (await serve()).post(ENDPOINTS[0], content=b"nonsense", headers=headers)
    assert refused.status_code == 400
    assert f"[{refused.headers['x-request-id']}] {ENDPOINTS[0]}: 400" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("fields", [{}, {"stream": "true"}])
async def test_a_place_is_free_before_the_client_has_its_whole_answer(serve: Serve, fields: dict[str, str]) -> None:
    """Else a client that sends one file after another would be refused now and then."""
    service = (await serve()).service
    held: list[int] = []
    request = httpx.Request("POST", "http://here", data=fields, files={"file": ("talk.wav", SMALL)})
    messages = iter([{"type": "http.request", "body": request.read()}])
    headers = [(name.lower(), value) for name, value in request.headers.raw]
    app = SimpleNamespace(state=SimpleNamespace(service=service))
    scope = {"type": "http", "path": "/", "headers": headers, "app": app}

    async def receive() -> Message:
        return next(messages, None) or await asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            held.append(service.shared.counter.total("uploads"))

    await FileEndpoint("transcribe")(scope, receive, send)
    assert held == [0]


async def test_a_header_that_asks_for_too_much_is_refused(server: Running) -> None:
    """With what is expected; and the server goes on."""
    for path in ENDPOINTS:
        refused = await post(server, path, header(1_073_757_824, 1))
        assert refused.status_code == 400, path
        assert "sample rate from 4000 to 384000 Hz, got 1073757824" in refused.text, path


@pytest.mark.parametrize(
    ("name", "n_bytes", "n_fields", "status"),
    [
        ("known_speaker_references[]", 3_900_000, 4, 200),
        ("known_speaker_references", 3_900_000, 5, 400),
        ("prompt", 1_100_000, 1, 400),
    ],
)
async def test_a_form_may_hold_the_longest_clips_of_known_speakers(
    name: str, n_bytes: int, n_fields: int, status: int
) -> None:
    """All of its text is in memory, so there is a limit, and a lower one for what is no clip."""
    part = f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{"a" * n_bytes}\r\n'
    body = (part * n_fields + "--b--\r\n").encode()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", b"multipart/form-data; boundary=b")]
    upload = Upload(Request({"type": "http", "headers": headers}, receive), Settings())
    if status == 200:
        assert len((await upload.form()).getlist(name)) == n_fields
    else:
        with pytest.raises(RequestError, match="body: expected a multipart form"):
            await upload.form()
