"""Client secrets: signed, short-lived, and invalid once their key is removed."""

import pytest

from tutti_server.app.service.client_secrets import MAX_CHARS, PREFIX, sign, verify

NOW = 1_000_000.0


def test_a_secret_carries_its_session_until_it_expires() -> None:
    secret = sign("k1", 1_000_600, {"type": "transcription"})
    assert secret.value.startswith(PREFIX)
    assert verify(secret.value, ["k0", "k1"], NOW) == secret
    assert verify(secret.value, ["k0", "k1"], 1_000_600.0) is None


def test_no_character_may_be_changed() -> None:
    value = sign("k1", 1_000_600, {"include": []}).value
    for at in range(len(PREFIX), len(value) - 1):
        changed = value[:at] + ("A" if value[at] != "A" else "B") + value[at + 1 :]
        assert verify(changed, ["k1"], NOW) is None


@pytest.mark.parametrize("value", ["", "ek_", "ek_é", "ek_%%%", "ek_" + "A" * 100_000, "sk-1", "ek_AAAA"])
def test_other_texts_are_no_secrets(value: str) -> None:
    assert verify(value, ["k1"], NOW) is None


def test_it_fits_into_a_header_and_a_subprotocol() -> None:
    secret = sign("k1", 1_000_600, {"prompt": "one two " * 500})
    assert len(secret.value) < MAX_CHARS and all(each.isalnum() or each in "-_" for each in secret.value)
    with pytest.raises(ValueError, match="expected a session that fits"):
        sign("k1", 1_000_600, {"prompt": "".join(map(str, range(5000)))})
