"""Credentials: which are valid, which refusals are counted, and where a key is found."""

import time
from collections.abc import Sequence

import pytest

from app.service.auth import Access, header_key, prefixed_key

SIGNING_KEY = "s"


class Refusals:
    """Counts refused credentials."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self) -> None:
        self.n += 1


def access(*keys: str) -> tuple[Access, Refusals]:
    refusals = Refusals()
    return Access(keys, SIGNING_KEY, refusals), refusals


def test_any_credential_is_valid_without_keys() -> None:
    """None as well."""
    open_to_all, refusals = access()
    for key in (None, "", "k"):
        assert open_to_all.admits(key) and open_to_all.admits_live(key)
    assert refusals.n == 0


@pytest.mark.parametrize("key", [None, "", "k", "k11", "é"])
def test_other_keys_are_refused_and_counted(key: str | None) -> None:
    closed, refusals = access("k1", "k2")
    assert not closed.admits(key)
    assert not closed.admits_live(key)
    assert refusals.n == 2


def test_a_check_without_admission_counts_nothing() -> None:
    closed, refusals = access("k1")
    assert closed.is_valid("k1") and not closed.is_valid("k2")
    assert refusals.n == 0


def test_a_client_secret_opens_live_sessions_only() -> None:
    closed, _ = access("k1", "k2")
    secret = closed.sign_client_secret("k2", int(time.time()) + 60, {"type": "transcription"})
    assert closed.admits_live(secret.value)
    assert not closed.admits(secret.value)
    assert closed.client_secret(secret.value) == secret
    without_its_key, _ = access("k1")
    assert not without_its_key.admits_live(secret.value)


def test_an_open_service_signs_with_its_own_key() -> None:
    """So that another gateway with the same signing key accepts the secret."""
    one, _ = access()
    other, _ = access()
    secret = one.sign_client_secret(None, int(time.time()) + 60, {})
    assert other.client_secret(secret.value) == secret


@pytest.mark.parametrize(
    ("authorization", "schemes", "key"),
    [
        ("Bearer k", ("bearer",), "k"),
        ("bearer  k ", ("bearer",), "k"),
        ("Token k", ("bearer",), None),
        ("Token k", ("token", "bearer"), "k"),
        ("Bearer", ("bearer",), ""),
        ("", ("bearer",), None),
    ],
)
def test_a_key_in_the_header_follows_its_scheme(authorization: str, schemes: Sequence[str], key: str | None) -> None:
    assert header_key({"authorization": authorization}, schemes) == key


def test_without_a_header_there_is_no_key() -> None:
    assert header_key({}) is None


def test_a_key_in_a_subprotocol_follows_its_prefix() -> None:
    assert prefixed_key(["tutti.v1", "tutti.key.k", "tutti.key.other"], "tutti.key.") == "k"
    assert prefixed_key(["tutti.v1"], "tutti.key.") is None
