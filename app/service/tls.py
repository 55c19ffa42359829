"""Loads the certificate of the server."""

import ssl
from pathlib import Path

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.settings import Settings


def load_tls(settings: Settings) -> ssl.SSLContext | None:
    """The TLS context of the server, for TLS 1.2 or newer; `None` if connections are not encrypted.

    Raises:
        SettingsError: a file cannot be read, is not PEM, or the key does not belong to the certificate.
    """
    if not settings.is_encrypted:
        return None
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
