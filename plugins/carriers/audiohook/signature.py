"""The signature of an AudioHook connection: HTTP Message Signatures with HMAC-SHA256, as Genesys' clients make them.

Source: Genesys' documentation of AudioHook, "Security", and RFC 9421.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping

from tutti_server.app.numbers import read_integer

REQUIRED = (
    *("@request-target", "@authority", "audiohook-organization-id", "audiohook-session-id"),
    *("audiohook-correlation-id", "x-api-key"),
)
"""What a signature must cover."""
MAX_AGE_S = 10
"""How old a signature may be, in seconds: after that, one that was seen on its way opens nothing."""
MAX_SKEW_S = 3
"""How far the clocks of client and server may be apart, in seconds."""
VALID_S = MAX_AGE_S + 2 * MAX_SKEW_S
"""How long one signature may be valid, in seconds: it may come from a clock that is ahead."""
MIN_NONCE_CHARS = 22
"""The shortest nonce, in characters: 16 bytes in base64."""
_INPUT = re.compile(
    r'([a-z*][a-z0-9_*.-]*)=(\(("[a-z0-9@_-]+"(?: "[a-z0-9@_-]+")*)\)((?:;[a-z]+=(?:"[ -!#-\[\]-~]*"|\d+))*))'
)
_PARAMETER = re.compile(r';([a-z]+)=(?:"([^"]*)"|(\d+))')
_SIGNATURE = re.compile(r"([a-z*][a-z0-9_*.-]*)=:([A-Za-z0-9+/]+={0,2}):")


class BadSignature(Exception):
    """Raised when a signature is not valid. The message says why, for the log of the operator."""


def check_signature(headers: Mapping[str, str], request_target: str, secret: bytes, now: float) -> str:
    """Check the signature of a request, and return its nonce. The caller takes no nonce twice within `VALID_S`.

    Args:
        headers: of the request; their names are in lower case, or case-insensitive.
        request_target: the path of the request with its query, as it came.
        now: seconds since 1970.

    Raises:
        BadSignature: the signature is missing, too old, covers too little, or is another one.
    """
    found = _INPUT.fullmatch(headers.get("signature-input", "").strip())
    signature = _SIGNATURE.fullmatch(headers.get("signature", "").strip())
    if found is None or signature is None or found[1] != signature[1]:
        raise BadSignature("expected one signature in Signature and Signature-Input, with the same label")
    covered = tuple(name.strip('"') for name in found[3].split(" "))
    if len(set(covered)) < len(covered) or not set(REQUIRED) <= set(covered):
        raise BadSignature(f"expected that it covers {', '.join(REQUIRED)}, each once")
    parameters: dict[str, str] = {name: text or number for name, text, number in _PARAMETER.findall(found[4])}
    _check_parameters(parameters, headers, now)
    base = "\n".join(
        (
            *(f'"{name}": {_value(name, headers, request_target)}' for name in covered),
            f'"@signature-params": {found[2]}',
        )
    )
    try:
        given = base64.b64decode(signature[2], validate=True)
    except ValueError:
        raise BadSignature("expected base64 in Signature") from None
    if not hmac.compare_digest(given, hmac.new(secret, base.encode(), hashlib.sha256).digest()):
        raise BadSignature("it is not that of this request with this client secret")
    return parameters["nonce"]


def _check_parameters(parameters: Mapping[str, str], headers: Mapping[str, str], now: float) -> None:
    created, expires = (read_integer(parameters.get(name, "")) for name in ("created", "expires"))
    if created is None or expires is None:
        raise BadSignature("expected the times created and expires")
    if not (now - MAX_AGE_S - MAX_SKEW_S <= created <= now + MAX_SKEW_S) or expires < now - MAX_SKEW_S:
        raise BadSignature(f"expected one of the last {MAX_AGE_S} s; are the clocks right?")
    if parameters.get("alg", "hmac-sha256") != "hmac-sha256":
        raise BadSignature("expected the algorithm hmac-sha256")
    if parameters.get("keyid") != headers.get("x-api-key"):
        raise BadSignature("expected the key of X-API-KEY as keyid")
    if len(parameters.get("nonce", "")) < MIN_NONCE_CHARS:
        raise BadSignature(f"expected a nonce of at least {MIN_NONCE_CHARS} characters")


def _value(name: str, headers: Mapping[str, str], request_target: str) -> str:
    if name == "@request-target":
        return request_target
    if name == "@authority":
        return headers.get("host", "").strip().lower()
    value = headers.get(name)
    if name.startswith("@") or value is None:
        raise BadSignature(f"it covers {name}, which is not there")
    return value.strip()
