"""Receives the bodies of HTTP requests: forms with a file, which is spooled to disk, and raw audio.

Limits of size and time apply while a body arrives, and work stops when its client disconnects.
"""

import asyncio
import errno
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from tutti_server.app.background import unless, until_disconnect
from tutti_server.app.errors import DISK_FULL, RETRY_AFTER_S, LimitExceeded, RequestError, shorten
from tutti_server.app.numbers import read_integer
from tutti_server.app.service.drain_limit import DrainLimit
from tutti_server.app.service.settings import Settings

MAX_FIELDS = 200
"""The most fields of a form. Keywords are repeated fields, so there may be many."""
MAX_FIELD_BYTES = 1 << 20
"""The most bytes of a field of text, but for a clip of a known speaker."""
CLIPS = "known_speaker_references"
"""The fields with such clips."""
MAX_TEXT_BYTES = 16 << 20
"""The most bytes of all fields of text, which are kept in memory: room for four clips of 10 s, each a data URL of two
channels with 24 bits at 48 kHz.
"""
CHARSETS = (b"utf-8", b"utf8", b"us-ascii")
"""The encodings of text fields that a form may name. Python knows others that make text which no answer can repeat."""
DISCARD_S = 5.0
"""How long a refused client may continue to send, in seconds. Most clients send all before they read a response."""

# Its warnings, which have no request id, are about what clients send. The answer says the same.
logging.getLogger("python_multipart").setLevel(logging.ERROR)

_Answer = TypeVar("_Answer")


@contextmanager
def refusing_without_resources() -> Iterator[None]:
    """Turn the operating system's lack of something into a refusal of the request.

    Raises:
        RequestError: 507, the disk is full; 503, there are too many open files, or there is no memory.
    """
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            message = "file: the server has no room for it on its disk; try again later"
            raise RequestError(507, message, "file", "disk_full") from error
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            reason = (error.strerror or str(error)).lower()
            message = f"file: the server has no room for it ({reason}); try again in {RETRY_AFTER_S} s"
            raise RequestError(503, message, "file", "overloaded") from error
        raise


class _Parser(MultiPartParser):
    """Accepts a part `file` without a file name as a file, limits text, and notes whether the form is complete.

    Older Python clients send a file name that is not ASCII only as `filename*`.
    """

    is_complete = False
    n_text_bytes = 0

    def on_headers_finished(self) -> None:
        """Give the part `file` a name if it has none, and choose the limit of the part."""
        part = self._current_part
        _, options = parse_options_header(part.content_disposition)
        if options.get(b"name") == b"file" and b"filename" not in options:
            part.content_disposition = (part.content_disposition or b"") + b'; filename="unnamed"'
        super().on_headers_finished()
        self.max_part_size = MAX_TEXT_BYTES if part.field_name.startswith(CLIPS) else MAX_FIELD_BYTES

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._current_part.file is None:
            self.n_text_bytes += end - start
            if self.n_text_bytes > MAX_TEXT_BYTES:
                raise MultiPartException(f"its text has more than {MAX_TEXT_BYTES} bytes")
        super().on_part_data(data, start, end)

    def on_end(self) -> None:
        self.is_complete = True


class Upload:
    """The body of one request. It is refused while it arrives if it is too large or too slow."""

    def __init__(self, request: Request, settings: Settings) -> None:
        self._request = request
        self._settings = settings
        self._n_received = 0
        self._is_received = False
        self._started = time.monotonic()

    async def form(self) -> FormData:
        """Receive a multipart form and spool its file to disk. The caller closes the form.

        Raises:
            RequestError: the body is not a multipart form, is too large, did not arrive in time, or the server has no
                room for it.
            ClientDisconnect: the client disconnected.
        """
        content_type = self._request.headers.get("content-type", "")
        if not content_type.lower().startswith("multipart/form-data"):
            got = shorten(content_type) if content_type else "no content type"
            raise RequestError(400, f"body: expected multipart/form-data, got {got}")
        _, options = parse_options_header(content_type)
        if (charset := options.get(b"charset", b"utf-8").lower()) not in CHARSETS:
            raise RequestError(400, f"body: expected text in UTF-8, got charset {shorten(charset.decode('latin-1'))}")
        parser = _Parser(
            self._request.headers, self._chunks(lambda: parser.is_complete), max_files=1, max_fields=MAX_FIELDS
        )
        try:
            with refusing_without_resources():
                return await parser.parse()
        except MultiPartException as error:
            raise RequestError(400, f"body: expected a multipart form ({error.message})") from error

    async def discard(self, drain_limit: DrainLimit) -> None:
        """Receive and drop the rest of the body, for at most `DISCARD_S`, and no longer than the server drains.

        A client that finds the connection closed while it sends does not read the response.
        """
        if self._is_received or "expect" in self._request.headers:
            return
        with suppress(TimeoutError, LimitExceeded):
            async with asyncio.timeout(DISCARD_S):
                await drain_limit.unless_over(self._receive_rest())

    async def _receive_rest(self) -> None:
        while not self._is_received:
            self._count(await self._request.receive())

    async def until_disconnected(self, work: Awaitable[_Answer]) -> _Answer:
        """Await the work. Cancel it if the client disconnects.

        Raises:
            ClientDisconnect: the client disconnected.
        """

        async def answered() -> tuple[_Answer]:
            return (await work,)

        found = await unless(until_disconnect(self._request.receive), answered())
        if found is None:
            raise ClientDisconnect
        return found[0]

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Receive a raw body piece by piece; raises like `form`."""
        self._check_size(read_integer(self._request.headers.get("content-length", "")) or 0)
        while not self._is_received:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            yield message.get("body", b"")

    async def _chunks(self, is_complete: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
        async for chunk in self.chunks():
            yield chunk
        if not is_complete():
            raise MultiPartException("it breaks off before its last boundary")

    async def _receive(self) -> Message:
        idle_s = self._settings.idle_timeout_s
        spare_s = self._spare_s()
        try:
            async with asyncio.timeout(min(idle_s, spare_s)):
                message = await self._request.receive()
        except TimeoutError:
            # `discard` need not wait for a client that sends no more, or hardly anything.
            self._is_received = True
            if spare_s < idle_s:
                expected = f"at least {self._settings.min_upload_kb_per_s:g} kB/s"
                raise RequestError(408, f"body: expected {expected}, it came more slowly", code="slow_upload") from None
            raise RequestError(408, f"body: nothing came for {idle_s:g} s", code="idle") from None
        self._count(message)
        self._check_size(self._n_received)
        return message

    def _spare_s(self) -> float:
        """Return for how many seconds no data need come until the upload is too slow as a whole."""
        earned_s = self._n_received / (self._settings.min_upload_kb_per_s * 1000)
        return max(self._settings.idle_timeout_s + earned_s - (time.monotonic() - self._started), 0.0)

    def _count(self, message: Message) -> None:
        self._n_received += len(message.get("body", b""))
        self._is_received = not message.get("more_body", False)

    def _check_size(self, n_bytes: int) -> None:
        limit_mb = self._settings.max_upload_mb
        if n_bytes > limit_mb * 1_000_000:
            raise RequestError(413, f"file: expected at most {limit_mb} MB", "file", "too_large")
