"""Loads the certificate of the server, and again when it has changed."""

import asyncio
import logging
import ssl
from pathlib import Path

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.followed_files import POLL_S, FollowedFiles
from tutti_server.app.service.settings import Settings

logger = logging.getLogger(__name__)


class Certificate(FollowedFiles):
    """The certificate and the key of a server. A program that renews them may write one after the other."""

    def __init__(self, settings: Settings) -> None:
        """Load the files. Raises like `load_tls`."""
        super().__init__("certificate and its key", (Path(settings.tls_cert), Path(settings.tls_key)))
        self._settings = settings
        self.context = _context(settings)
        """The context for new connections. A change of the files replaces it; open connections keep theirs."""

    async def load(self) -> None:
        """Load the files; see `FollowedFiles.load`."""
        self.context = await asyncio.to_thread(_context, self._settings)


def load_tls(settings: Settings) -> Certificate | None:
    """The certificate of the server; `None` if connections are not encrypted.

    Raises:
        SettingsError: a file cannot be read, is not PEM, or the key does not belong to the certificate.
    """
    return Certificate(settings) if settings.is_encrypted else None


async def usable_tls(settings: Settings) -> Certificate | None:
    """Load the certificate like `load_tls`, and wait while its files cannot be used.

    For gateways: the service has started with these files. One that starts again would else end it.
    """
    logged = ""
    while True:
        try:
            return load_tls(settings)
        except SettingsError as error:
            if str(error) != logged:
                logged = str(error)
                logger.error("no client is served before the certificate and its key can be used: %s", error)
        await asyncio.sleep(POLL_S)


def _context(settings: Settings) -> ssl.SSLContext:
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
    files = f"{settings.tls_cert} and {settings.tls_key}"
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_refuse_passphrase)
    except ssl.SSLError as error:
        expected = "expected a certificate and its private key, both PEM"
        raise SettingsError(f"tls_cert, tls_key: {expected}, got {files} ({error.reason or error})") from error
    except OSError as error:
        # A file was there a moment ago.
        raise SettingsError(f"tls_cert, tls_key: cannot read {files}: {error.strerror}") from error
    return context


def _refuse_passphrase() -> str:
    # Without this callback OpenSSL would ask for a passphrase at the terminal and wait.
    raise SettingsError("tls_key: expected a key without a passphrase, got an encrypted one")
