"""Short-lived secrets for browsers: signed with the API key of whoever asked for one, so nothing is stored.

Any replica with the same keys accepts them, and a key that is withdrawn takes its secrets with it.
"""

import base64
import binascii
import hashlib
import hmac
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

PREFIX = "ek_"
# Secrets travel in a header, whose length is limited.
MAX_CHARS = 4096
_MAC_BYTES = 32
_PURPOSE = b"tutti client secret\0"


@dataclass(frozen=True, slots=True)
class ClientSecret:
    value: str
    expires_at: int
    """Seconds since 1970."""
    session: dict[str, Any]
    """What sessions opened with it are set to at first, as their client would say it."""


def sign(key: str, expires_at: int, session: dict[str, Any]) -> ClientSecret:
    """A new secret. Whoever has it can read `session`, and open sessions until it expires.

    Raises:
        ValueError: the session is too long to travel in a header.
    """
    content = json.dumps({"expires_at": expires_at, "id": token_hex(8), "session": session})
    payload = zlib.compress(content.encode())
    encoded = base64.urlsafe_b64encode(_mac(key, payload) + payload).rstrip(b"=").decode()
    if len(encoded) > MAX_CHARS:
        raise ValueError(f"expected a session that fits into {MAX_CHARS} characters, got {len(encoded)}")
    return ClientSecret(PREFIX + encoded, expires_at, session)


def read(value: str, keys: Iterable[str], now: float) -> ClientSecret | None:
    """The secret as it was signed with one of the keys; `None` if it was not, or has expired."""
    encoded = value.removeprefix(PREFIX)
    if not value.startswith(PREFIX) or len(encoded) > MAX_CHARS:
        return None
    try:
        signed = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    mac, payload = signed[:_MAC_BYTES], signed[_MAC_BYTES:]
    if not any(hmac.compare_digest(mac, _mac(key, payload)) for key in keys):
        return None
    content = json.loads(zlib.decompress(payload))
    if content["expires_at"] <= now:
        return None
    return ClientSecret(value, content["expires_at"], content["session"])


def _mac(key: str, payload: bytes) -> bytes:
    return hmac.digest(key.encode(), _PURPOSE + payload, hashlib.sha256)
