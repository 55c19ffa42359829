"""Bodies of HTTP requests on their way in: forms with a file, spooled to disk, and clients that go away."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from app.errors import RequestError, shorten
from app.service.settings import Settings

# Keywords and the like are repeated fields.
MAX_FIELDS = 200
# How long a refused client may go on sending; most read no answer before they are done.
DISCARD_S = 5.0


_Answer = TypeVar("_Answer")


class _Parser(MultiPartParser):
    """Knows where the form ends, and takes the part `file` for one even if it has no name, or only one beyond ASCII.

    Older clients in Python spell the latter as `filename*`.
    """

    is_whole = False

    def on_headers_finished(self) -> None:
        part = self._current_part
        _, options = parse_options_header(part.content_disposition)
        if options.get(b"name") == b"file" and b"filename" not in options:
            part.content_disposition = (part.content_disposition or b"") + b'; filename="unnamed"'
        super().on_headers_finished()

    def on_end(self) -> None:
        self.is_whole = True


class Upload:
    """The body of one request. It counts what comes, and refuses what is too large or too slow while it arrives."""

    def __init__(self, request: Request, settings: Settings) -> None:
        self._request = request
        self._settings = settings
        self._n_received = 0
        self._is_over = False

    async def form(self) -> FormData:
        """The multipart form, its file on disk; close it after use.

        Raises:
            RequestError: it is no such form, too large, or did not arrive in time.
            ClientDisconnect: the client went away.
        """
        content_type = self._request.headers.get("content-type", "")
        if not content_type.lower().startswith("multipart/form-data"):
            got = shorten(content_type) if content_type else "no content type"
            raise RequestError(400, f"body: expected multipart/form-data, got {got}")
        parser = _Parser(
            self._request.headers, self._chunks(lambda: parser.is_whole), max_files=1, max_fields=MAX_FIELDS
        )
        try:
            return await parser.parse()
        except MultiPartException as error:
            raise RequestError(400, f"body: expected a multipart form ({error.message})") from error

    async def discard(self) -> None:
        """Read what is still being sent, for a while. A client that finds the connection closed reads no answer."""
        if self._is_over or "expect" in self._request.headers:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_S):
                while not self._is_over:
                    self._note(await self._request.receive())

    async def until_disconnected(self, work: Awaitable[_Answer]) -> _Answer:
        """Await the work, or cancel it when the client goes away.

        Raises:
            ClientDisconnect: it did.
        """
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(self._disconnected())
        try:
            await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientDisconnect
            return task.result()
        finally:
            for each in (task, watch):
                each.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)

    async def _disconnected(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes; raises like `form`."""
        self._check_size(int(self._request.headers.get("content-length", 0)))
        while not self._is_over:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            yield message.get("body", b"")

    async def _chunks(self, is_whole: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
        async for chunk in self.chunks():
            yield chunk
        if not is_whole():
            raise MultiPartException("it breaks off before its last boundary")

    async def _receive(self) -> Message:
        idle_s = self._settings.idle_timeout_s
        try:
            async with asyncio.timeout(idle_s):
                message = await self._request.receive()
        except TimeoutError:
            # It will not say more for being waited for.
            self._is_over = True
            raise RequestError(408, f"body: nothing came for {idle_s:g} s", code="idle") from None
        self._note(message)
        self._check_size(self._n_received)
        return message

    def _note(self, message: Message) -> None:
        self._n_received += len(message.get("body", b""))
        self._is_over = not message.get("more_body", False)

    def _check_size(self, n_bytes: int) -> None:
        limit_mb = self._settings.max_upload_mb
        if n_bytes > limit_mb * 1_000_000:
            raise RequestError(413, f"file: expected at most {limit_mb} MB", "file", "too_large")
