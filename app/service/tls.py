"""Loads the certificate of the server, and again when it has changed."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.settings import Settings

logger = logging.getLogger(__name__)

POLL_S = 2.0
"""How often the files are looked at, in seconds."""


class Certificate:
    """The certificate and the key of a server. Files that cannot be used leave them as they were."""

    def __init__(self, settings: Settings) -> None:
        """Load the files. Raises like `load_tls`."""
        self._settings = settings
        self._state = self._state_of_files()
        self.context = _context(settings)
        """The context for new connections. A change of the files replaces it; open connections keep theirs."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow changes of the files while the context is open."""
        polling = asyncio.create_task(self._keep_polling())
        try:
            yield
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)

    async def refresh(self) -> None:
        """Load the files again if one has changed. The log says what is wrong with files that cannot be used."""
        state = await asyncio.to_thread(self._state_of_files)
        if state == self._state:
            return
        self._state = state
        try:
            self.context = await asyncio.to_thread(_context, self._settings)
        except SettingsError as error:
            # A program that renews them may have written one of them alone until now.
            logger.error("the certificate stays as it was: %s", error)
        else:
            logger.info("the certificate was read again from %s", self._settings.tls_cert)

    async def _keep_polling(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self.refresh()

    def _state_of_files(self) -> list[tuple[int, int, int] | None]:
        """What differs after a change."""
        return [_state(path) for path in (self._settings.tls_cert, self._settings.tls_key)]


def load_tls(settings: Settings) -> Certificate | None:
    """The certificate of the server; `None` if connections are not encrypted.

    Raises:
        SettingsError: a file cannot be read, is not PEM, or the key does not belong to the certificate.
    """
    return Certificate(settings) if settings.is_encrypted else None


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _context(settings: Settings) -> ssl.SSLContext:
    """The TLS context of new connections, for TLS 1.2 or newer. Raises like `load_tls`."""
    for name in ("tls_cert", "tls_key"):
        path = getattr(settings, name)
        try:
            with Path(path).open("rb"):
                pass
        except OSError as error:
            raise SettingsError(f"{name}: cannot read {path}: {error.strerror}") from error
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # WebSockets start as HTTP/1.1, so HTTP/2 is not offered.
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_refuse_passphrase)
    except ssl.SSLError as error:
        files = f"{settings.tls_cert} and {settings.tls_key}"
        expected = "expected a certificate and its private key, both PEM"
        raise SettingsError(f"tls_cert, tls_key: {expected}, got {files} ({error.reason or error})") from error
    return context


def _refuse_passphrase() -> str:
    # Without this callback OpenSSL would ask for a passphrase at the terminal and wait.
    raise SettingsError("tls_key: expected a key without a passphrase, got an encrypted one")
