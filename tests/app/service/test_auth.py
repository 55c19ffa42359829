"""Credentials: which are valid, which refusals are counted, and where a key is found."""

import hmac
import time
from collections.abc import Sequence
from itertools import product

import pytest

from tutti_server.app.service.accounts import account_of
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.app.service.auth import Access, Client, header_key, prefixed_key
from tutti_server.app.sharing.local_store import LocalStore

SIGNING_KEY = "s"


def access(*keys: str, limited: Sequence[ApiKey] = ()) -> tuple[Access, list[str]]:
    """The check of a service with these keys, and the reasons of its refusals."""
    refusals: list[str] = []
    named = {each.key: each for each in limited}
    unnamed = [key for key in keys if key not in named]
    return Access(unnamed, SIGNING_KEY, refusals.append, LocalStore(), lambda: named), refusals


async def test_any_credential_is_valid_without_keys() -> None:
    """None as well."""
    open_to_all, refusals = access()
    for key in (None, "", "k"):
        assert open_to_all.client(key) and await open_to_all.live_client(key) == Client()
    assert not refusals


@pytest.mark.parametrize("key", [None, "", "k", "k11", "é"])
async def test_other_keys_are_refused_and_counted(key: str | None) -> None:
    closed, refusals = access("k1", "k2")
    assert not closed.client(key)
    assert await closed.live_client(key) is None
    assert refusals == ["unauthorized", "unauthorized"]


def test_a_check_without_admission_counts_nothing() -> None:
    closed, refusals = access("k1")
    assert closed.known_client("k1") and not closed.known_client("k2")
    assert not refusals


async def test_a_client_secret_opens_live_sessions_only() -> None:
    closed, _ = access("k1", "k2")
    secret = closed.sign_client_secret("k2", int(time.time()) + 60, {"type": "transcription"})
    assert await closed.live_client(secret.value) == Client(None, secret, False, account_of(None, "k2"))
    assert not closed.client(secret.value)
    assert closed.client_secret(secret.value) == secret
    without_its_key, _ = access("k1")
    assert await without_its_key.live_client(secret.value) is None


async def test_a_client_has_the_limits_of_its_key() -> None:
    """Also with a client secret, which counts for the key that made it."""
    limited = ApiKey(name="team", key="k1", sessions=1)
    closed, _ = access("k1", "k2", limited=[limited])
    assert closed.client("k1") == Client(limited, account="account:team")
    assert closed.client("k2") == await closed.live_client("k2") == Client(account=account_of(None, "k2"))
    secret = closed.sign_client_secret("k1", int(time.time()) + 60, {})
    assert await closed.live_client(secret.value) == Client(limited, secret, False, "account:team")


async def test_a_client_opens_rooms_if_its_key_and_its_secret_allow_it() -> None:
    """Secrets are for pages of other people, so they must say so. Without keys everyone may."""
    closed, _ = access("k1", "k2", limited=[ApiKey(name="team", key="k2", rooms=False)])
    for key, rooms in product(("k1", "k2"), (True, False)):
        client = closed.client(key)
        assert client and client.may_open_rooms == (key == "k1")
        secret = closed.sign_client_secret(key, int(time.time()) + 60, {}, rooms)
        client = await closed.live_client(secret.value)
        assert client and client.may_open_rooms == (key == "k1" and rooms)
    opened, _ = access()
    client = await opened.live_client(opened.sign_client_secret(None, int(time.time()) + 60, {}).value)
    assert client and client.may_open_rooms


async def test_a_withdrawn_secret_opens_nothing() -> None:
    """Another one of the same key does."""
    closed, refusals = access("k1")
    withdrawn, other = (closed.sign_client_secret("k1", int(time.time()) + 60, {}) for _ in range(2))
    await closed.withdrawals.withdraw(withdrawn)
    assert await closed.live_client(withdrawn.value) is None
    assert refusals == ["unauthorized"]
    assert await closed.live_client(other.value)


def test_a_secret_belongs_to_the_key_that_made_it() -> None:
    closed, _ = access("k1", "k2")
    secret = closed.sign_client_secret("k1", int(time.time()) + 60, {})
    assert closed.own_client_secret("k1", secret.value) == secret
    assert closed.own_client_secret("k2", secret.value) is None
    open_to_all, _ = access()
    secret = open_to_all.sign_client_secret("any", int(time.time()) + 60, {})
    assert open_to_all.own_client_secret(None, secret.value) == secret


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


def test_a_key_in_a_subprotocol_follows_its_prefix() -> None:
    assert prefixed_key(["tutti.v1", "tutti.key.k", "tutti.key.other"], "tutti.key.") == "k"
    assert prefixed_key(["tutti.v1"], "tutti.key.") is None


async def test_the_time_of_a_check_does_not_tell_how_close_a_key_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key is compared as a whole with every known one, by what takes the same time for each of a length."""

    class Closed(str):
        """A key that must not be compared character by character."""

        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            assert self is other, "compared with =="
            return True

    compared: list[tuple[bytes, bytes]] = []
    digests = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return digests(one, other)

    monkeypatch.setattr("hmac.compare_digest", compare)
    first, second = Closed("first-key"), Closed("second-key")
    check, _ = access(first, second, limited=[ApiKey(key=second, name="b")])
    for shown, is_valid in ((first, True), (second, True), (Closed("first-kez"), False), (Closed(""), False)):
        compared.clear()
        assert (check.known_client(shown) is not None) == is_valid
        assert compared == [(known.encode(), shown.encode()) for known in (first, second)]
