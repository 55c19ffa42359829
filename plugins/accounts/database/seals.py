"""Seals secrets of the database with keys of the operator, so that who reads the database alone does not learn them.

A sealed text names its key by a part of the key's hash. So several keys can be in use while one takes the place of
another, and a key that is missing can be named.
"""

import base64
import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tutti_server.app.errors import SettingsError

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

SEALED = "sealed:"
"""Begins each sealed text: `sealed:KEY-ID:TOKEN`. Addresses and signing keys never begin so."""
KEY_BYTES = 32
ID_DIGITS = 8
"""Hexadecimal digits of a key's id."""


class SealKeyMissing(Exception):
    """A text is sealed with a key that is not there, or was changed since. The message is for the operator."""


def read_key(line: str) -> bytes:
    """A key from its text: 32 bytes in base64, as `openssl rand -base64 32` writes them. Raises `ValueError`."""
    key = base64.b64decode(line.strip(), validate=True)
    if len(key) != KEY_BYTES:
        raise ValueError(f"got {len(key)} bytes")
    return key


def key_id(text: str) -> str | None:
    """The id of the key with which a text is sealed; `None` if it is not."""
    return text.removeprefix(SEALED).partition(":")[0] if text.startswith(SEALED) else None


class Seals:
    """The operator's keys. Without any, texts stay as they are."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        """Prepare to seal with the first of these keys of 32 bytes. Every one opens what was sealed with it."""
        self._keys = {hashlib.sha256(key).hexdigest()[:ID_DIGITS]: _fernet(key) for key in keys}

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of the keys, the one that seals first."""
        return tuple(self._keys)

    def seal(self, text: str) -> str:
        """Seal a text, or one that is sealed with another key again. What is empty, or sealed so already, stays.

        Raises:
            SealKeyMissing: it is sealed with a key that is not there.
        """
        id_ = next(iter(self._keys), None)
        if not text or id_ is None or key_id(text) == id_:
            return text
        return f"{SEALED}{id_}:{self._keys[id_].encrypt(self.open(text).encode()).decode()}"

    def seal_again(self, text: str, lost: str | None) -> str:
        """Seal a text as `seal` does; where no key opens it, seal `lost` in its place, unless that is `None`."""
        try:
            return self.seal(text)
        except SealKeyMissing:
            if lost is None:
                raise
            return self.seal(lost)

    def open(self, text: str) -> str:
        """Return the text that was sealed; one that is not sealed stays as it is.

        Raises:
            SealKeyMissing: the key is not there, or the text was changed.
        """
        id_ = key_id(text)
        if id_ is None:
            return text
        if id_ not in self._keys:
            raise SealKeyMissing(f"expected the key {id_}, which has sealed it, got {self._described()}")
        # Imported here because it is an extra.
        from cryptography.fernet import InvalidToken

        try:
            return self._keys[id_].decrypt(text.removeprefix(f"{SEALED}{id_}:").encode()).decode()
        except InvalidToken:
            raise SealKeyMissing(f"expected what the key {id_} has sealed, got something else") from None

    def _described(self) -> str:
        return f"the keys {', '.join(self._keys)}" if self._keys else "no key"


NO_SEALS = Seals()
"""Leaves texts as they are."""


def _fernet(key: bytes) -> "Fernet":
    from cryptography.fernet import Fernet

    return Fernet(base64.urlsafe_b64encode(key))


def seals_of_file(name: str) -> Seals:
    """What seals with the keys of this file; nothing is sealed without a name.

    Raises:
        SettingsError: the file of the keys cannot be read, or has no keys, or what seals is not installed.
    """
    if not name:
        return Seals()
    if find_spec("cryptography") is None:
        raise SettingsError("secret_keys_file: needs cryptography: pip install 'tutti-asr[sealing]'")
    try:
        lines = [each for each in Path(name).expanduser().read_text().splitlines() if each.strip()]
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        raise SettingsError(f"secret_keys_file: expected a text file with keys, got {error}") from error
    try:
        keys = [read_key(each) for each in lines]
    except ValueError as error:
        # A line itself is not shown: it may be almost right.
        expected = "32 bytes in base64 on each line, as `openssl rand -base64 32` writes them"
        raise SettingsError(f"secret_keys_file: expected {expected}: {error}") from None
    if not keys:
        raise SettingsError(f"secret_keys_file: expected keys, got an empty file {name}")
    return Seals(keys)
