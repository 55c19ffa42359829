"""Client secrets: short-lived credentials for browsers, signed with the API key of the client that asked for one.

The server stores none of them. Any replica with the same keys accepts them. A secret becomes invalid when the operator
removes the key that signed it, or when its owner withdraws it (`withdrawals.py`).
"""

import base64
import binascii
import hashlib
import hmac
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

PREFIX = "ek_"
"""The first characters of every secret, as in OpenAI's API."""
MAX_CHARS = 4096
"""The longest secret, without its prefix: secrets travel in a header, whose length servers limit."""
_MAC_BYTES = 32
_PURPOSE = b"tutti client secret\0"
"""Is signed along with the content, so that no signature made for another purpose is valid here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecret:
    """A credential that opens live sessions until it expires."""

    value: str
    """The credential as clients send it."""
    expires_at: int
    """The time at which the secret ends, in seconds since 1970."""
    session: dict[str, Any]
    """The first settings of every session that it opens, as its client would send them."""
    id: str
    """Tells it from all others, and opens nothing."""
    key: str = field(repr=False)
    """The key that signed it."""
    key_id: str = ""
    """The record of the key in the database; empty for a key of the settings."""
    rooms: bool = False
    """Whether its sessions may be published in rooms, if those of the key may."""


def sign(key: str, expires_at: int, session: dict[str, Any], rooms: bool = False, key_id: str = "") -> ClientSecret:
    """Make a new secret. Its owner can read `session`, and can open sessions until the secret expires.

    Args:
        expires_at: in seconds since 1970.
        session: the first settings of its sessions.
        rooms: whether its sessions may be published in rooms.
        key_id: tells by which record of the database the secret is verified. It stands in the secret, readable.

    Raises:
        ValueError: the session is too long to travel in a header.
    """
    id_ = token_hex(8)
    content = json.dumps({"expires_at": expires_at, "id": id_, "session": session} | ({"rooms": True} if rooms else {}))
    payload = zlib.compress(content.encode())
    encoded = base64.urlsafe_b64encode(_mac(key, payload) + payload).rstrip(b"=").decode()
    if len(encoded) > MAX_CHARS:
        raise ValueError(f"expected a session that fits into {MAX_CHARS} characters, got {len(encoded)}")
    return ClientSecret(
        value=f"{PREFIX}{key_id}.{encoded}" if key_id else PREFIX + encoded,
        expires_at=expires_at,
        session=session,
        id=id_,
        key=key,
        key_id=key_id,
        rooms=rooms,
    )


def key_id_of(value: str) -> str:
    """The record of the key that is said to have signed a secret; empty for a key of the settings."""
    return value.removeprefix(PREFIX).partition(".")[0] if value.startswith(PREFIX) and "." in value else ""


def verify(value: str, keys: Iterable[str], now: float) -> ClientSecret | None:
    """The secret, if one of the keys signed it and it has not expired at `now` (seconds since 1970); else `None`."""
    key_id = key_id_of(value)
    encoded = value.removeprefix(PREFIX).removeprefix(f"{key_id}." if key_id else "")
    if not value.startswith(PREFIX) or len(encoded) > MAX_CHARS:
        return None
    try:
        signed = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    mac, payload = signed[:_MAC_BYTES], signed[_MAC_BYTES:]
    key = next((key for key in keys if hmac.compare_digest(mac, _mac(key, payload))), None)
    if key is None:
        return None
    content = json.loads(zlib.decompress(payload))
    if content["expires_at"] <= now:
        return None
    return ClientSecret(
        value=value,
        expires_at=content["expires_at"],
        session=content["session"],
        id=content["id"],
        key=key,
        key_id=key_id,
        rooms=content.get("rooms", False),
    )


def _mac(key: str, payload: bytes) -> bytes:
    return hmac.digest(key.encode(), _PURPOSE + payload, hashlib.sha256)
