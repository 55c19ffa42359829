"""The certificate that the server shows."""

import ssl

from app.errors import SettingsError
from app.service.settings import Settings


def load_tls(settings: Settings) -> ssl.SSLContext | None:
    """What connections are encrypted with, TLS 1.2 at least; `None` where they are not.

    Raises:
        SettingsError: a file cannot be read, is not what it should be, or the key belongs to another certificate.
    """
    if not settings.is_encrypted:
        return None
    for name in ("tls_cert", "tls_key"):
        path = getattr(settings, name)
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise SettingsError(f"{name}: cannot read {path}: {error.strerror}") from error
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # WebSockets start as HTTP/1.1; a client that asks for HTTP/2 is told so at once.
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_refuse_passphrase)
    except ssl.SSLError as error:
        files = f"{settings.tls_cert} and {settings.tls_key}"
        expected = "expected a certificate and its private key, both PEM"
        raise SettingsError(f"tls_cert, tls_key: {expected}, got {files} ({error.reason or error})") from error
    return context


def _refuse_passphrase() -> str:
    # Without this the start would wait at the terminal for one.
    raise SettingsError("tls_key: expected a key without a passphrase, got an encrypted one")
