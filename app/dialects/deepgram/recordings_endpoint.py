"""Reads recordings for Deepgram's API from requests or from addresses, and makes jobs of those with a callback."""

import asyncio
import hashlib
from contextlib import aclosing
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tutti_server.app.dialects.body_endpoint import json_body
from tutti_server.app.dialects.checks import INDEX
from tutti_server.app.dialects.deepgram.common_endpoint import Refusal, answer_headers
from tutti_server.app.dialects.deepgram.options import Options
from tutti_server.app.errors import shorten
from tutti_server.app.files.uploads import Upload, refusing_without_resources
from tutti_server.app.jobs import JobDelayed, JobFailed
from tutti_server.app.jobs import Request as JobRequest
from tutti_server.app.service.auth import Client
from tutti_server.app.service.client_connections import admit
from tutti_server.app.service.service import Service

KIND = "deepgram"
"""The name of these jobs in the database."""
CALLBACK_OPTIONS = ("callback", "callback_method")
"""Options that are kept as fields of a job, where the address is sealed, and not with the others."""
PIECE_BYTES = 1 << 20
"""The hash of a file is computed over pieces of this size."""
SPOOL_BYTES = 1_000_000
"""A larger recording is kept on disk."""
MAX_URL_CHARS = 2000
REMOTE = "REMOTE_CONTENT_ERROR"
"""Deepgram's code for a recording that cannot be fetched."""


async def receive_recording(request: Request, upload: Upload, file: IO[bytes]) -> str:
    """Write the recording of a request into the file, and rewind it. Returns its SHA-256 in hexadecimal digits.

    Raises:
        Refusal: there is no audio, or it cannot be fetched.
        RequestError: the body is too large or too slow.
    """
    service: Service = request.app.state.service
    if not _is_json(request):
        return await _receive(upload, file)
    url = await _url(upload)
    # Imported here because it brings an HTTP client, and few services fetch recordings.
    from tutti_server.app.files.fetch import fetcher

    try:
        await upload.until_disconnected(fetcher(service.settings).fetch(url, file))
    except JobFailed as error:
        raise Refusal(400, REMOTE, error.message) from error
    except JobDelayed as error:
        raise Refusal(503, REMOTE, str(error)) from error
    file.seek(0)
    return await asyncio.to_thread(sha256_of, file)


async def take_job(request: Request, upload: Upload, options: Options, client: Client) -> Response:
    """Take in a recording whose answer is sent to an address later.

    Raises:
        Refusal: the callback or the recording is not allowed.
        RequestError: the body is too large or too slow, or the key may make no jobs.
        LimitExceeded: there is no room.
    """
    service: Service = request.app.state.service
    jobs = service.accounts.jobs
    if jobs is None:
        raise Refusal(400, "INVALID_QUERY_PARAMETER", "callback: this server takes in no jobs; leave it out")
    uploader = service.access.holder(client)
    async with service.access.limits.upload(client.key, "job"):
        with (
            service.admission.upload(uploader),
            refusing_without_resources(),
            SpooledTemporaryFile(SPOOL_BYTES) as file,
        ):
            admit(request.scope)
            url = await _url(upload) if _is_json(request) else ""
            if not url:
                await service.admission.drain_limit.unless_over(_receive(upload, file))
            items = request.query_params.multi_items()
            query = [[name, value] for name, value in items if INDEX.sub("", name) not in CALLBACK_OPTIONS]
            wanted = JobRequest(
                kind=KIND,
                options={"query": query},
                url=url,
                callback_url=options.callback,
                callback_method=options.callback_method,
            )
            jobs.check_addresses(wanted)
            job, _ = await jobs.submit(client.account, client.key, wanted, None if url else file)
    return JSONResponse({"request_id": job.id}, headers=answer_headers(job.id, options.ignored, options.adjusted))


def sha256_of(file: IO[bytes]) -> str:
    """The SHA-256 of a file in hexadecimal digits. Leaves the file at its beginning."""
    sha256 = hashlib.sha256()
    while piece := file.read(PIECE_BYTES):
        sha256.update(piece)
    file.seek(0)
    return sha256.hexdigest()


def _is_json(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


async def _url(upload: Upload) -> str:
    body: dict[str, Any] = await json_body(upload)
    url = body.get("url")
    if not isinstance(url, str) or not 0 < len(url) <= MAX_URL_CHARS:
        raise Refusal(400, "Bad Request", f"url: expected the address of a recording, got {shorten(url)}")
    return url


async def _receive(upload: Upload, file: IO[bytes]) -> str:
    """Write the body into the file, and rewind it. Returns its SHA-256."""
    sha256 = hashlib.sha256()
    async with aclosing(upload.chunks()) as chunks:
        async for chunk in chunks:
            sha256.update(chunk)
            await asyncio.to_thread(file.write, chunk)
    if not file.tell():
        raise Refusal(400, "Bad Request", "body: expected audio, got nothing")
    file.seek(0)
    return sha256.hexdigest()
