"""The signatures of AudioHook: Genesys' own example, and what must not pass."""

import base64

import pytest

from tutti_server.plugins.carriers.audiohook.signature import BadSignature, check_signature

# The example of Genesys' documentation, with the key and the secret that it names.
KEY = "SGVsbG8sIEkgYW0gdGhlIEFQSSBrZXkh"
SECRET = base64.b64decode("TXlTdXBlclNlY3JldEtleVRlbGxOby0xITJAMyM0JDU=")
COVERED = (
    '("@request-target" "@authority" "audiohook-organization-id" "audiohook-session-id" '
    '"audiohook-correlation-id" "x-api-key")'
)
PARAMETERS = f';keyid="{KEY}";nonce="VGhpc0lzQVVuaXF1ZU5vbmNl";alg="hmac-sha256";created=1641013200;expires=3282026430'
TARGET = "/api/v1/voicebiometrics/ws"
CREATED_S = 1641013200
HEADERS = {
    "host": "audiohook.example.com",
    "audiohook-organization-id": "d7934305-0972-4844-938e-9060eef73d05",
    "audiohook-correlation-id": "e160e428-53e2-487c-977d-96989bf5c99d",
    "audiohook-session-id": "30b0e395-84d3-4570-ac13-9a62d8f514c0",
    "x-api-key": KEY,
    "signature": "sig1=:NZBwyBHRRyRoeLqy1IzOa9VYBuI8TgMFt2GRDkDuJh4=:",
    "signature-input": f"sig1={COVERED}{PARAMETERS}",
}


def test_the_example_of_the_documentation_is_valid() -> None:
    assert check_signature(HEADERS, TARGET, SECRET, CREATED_S + 1) == "VGhpc0lzQVVuaXF1ZU5vbmNl"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"host": "other.example.com"}, "not that of this request"),
        ({"audiohook-session-id": "x"}, "not that of this request"),
        ({"signature": "sig1=:AAAA:"}, "not that of this request"),
        ({"signature": ""}, "expected one signature"),
        ({"signature": "sig2=:NZBwyBHRRyRoeLqy1IzOa9VYBuI8TgMFt2GRDkDuJh4=:"}, "with the same label"),
        ({"signature-input": ""}, "expected one signature"),
        ({"signature-input": f'sig1=("@request-target"){PARAMETERS}'}, "expected that it covers"),
        ({"signature-input": f'sig1={COVERED[:-1]} "x-api-key"){PARAMETERS}'}, "each once"),
        ({"signature-input": f'sig1={COVERED[:-1]} "x-other"){PARAMETERS}'}, "x-other, which is not there"),
        ({"signature-input": f"sig1={COVERED}{PARAMETERS.replace('-sha256', '-sha512')}"}, "hmac-sha256"),
        ({"signature-input": f"sig1={COVERED}{PARAMETERS.replace('VGhpc0lzQVVuaXF1ZU5vbmNl', 'x')}"}, "a nonce"),
        ({"signature-input": f'sig1={COVERED};keyid="{KEY}"'}, "created and expires"),
        ({"x-api-key": "other"}, "as keyid"),
    ],
)
def test_another_request_is_refused(changed: dict[str, str], expected: str) -> None:
    with pytest.raises(BadSignature, match=expected):
        check_signature(HEADERS | changed, TARGET, SECRET, CREATED_S + 1)


@pytest.mark.parametrize("now", [CREATED_S - 4, CREATED_S + 14])
def test_a_signature_is_valid_for_seconds(now: float) -> None:
    with pytest.raises(BadSignature, match="clocks"):
        check_signature(HEADERS, TARGET, SECRET, now)


def test_another_secret_or_path_is_refused() -> None:
    for target, secret in ((TARGET + "?x", SECRET), (TARGET, b"other")):
        with pytest.raises(BadSignature, match="not that of this request"):
            check_signature(HEADERS, target, secret, CREATED_S)
