"""Who may use the service, and how much: API keys, client secrets, and where each client carries its credential."""

import hmac
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.service import client_secrets
from app.service.api_keys import ApiKey
from app.service.client_secrets import ClientSecret
from app.service.key_limits import KeyLimits
from app.service.withdrawals import Withdrawals
from app.sharing.store import SharedStore


@dataclass(frozen=True, slots=True)
class Client:
    """A client whose credential is valid."""

    key: ApiKey | None = None
    """The key that its sessions and uploads count for; `None` if that key has no limits."""
    secret: ClientSecret | None = None
    """The client secret that it has shown in place of a key."""
    may_open_rooms: bool = True
    """Whether its sessions may be published in rooms."""


class Access:
    """Decides whether a credential is valid.

    Without API keys the service is open: any credential is valid, and so is none.
    """

    def __init__(
        self,
        keys: Collection[str],
        signing_key: str,
        on_refused: Callable[[str], None],
        store: SharedStore,
        named_keys: Collection[ApiKey] = (),
    ) -> None:
        """Create the check for one service.

        Args:
            keys: the API keys of the operator, the limited ones among them.
            signing_key: signs client secrets while there are no API keys. All gateways have the same one.
            on_refused: called with a reason for each credential, session and upload that is refused: `unauthorized` or
                `key_limit`.
            store: holds what all gateways must know.
            named_keys: those keys that have a name, with their limits and rights.
        """
        self._keys = tuple(keys)
        self._signing_key = signing_key
        self._on_refused = on_refused
        self._limited = {each.key: each for each in named_keys if each.has_limits}
        self._without_rooms = frozenset(each.key for each in named_keys if not each.rooms)
        self.limits = KeyLimits(store, lambda: on_refused("key_limit"))
        self.withdrawals = Withdrawals(store)

    @property
    def is_open(self) -> bool:
        """Whether clients need no credential, so that nothing is known of them before their first message."""
        return not self._keys

    def is_valid(self, key: str | None) -> bool:
        """Whether this API key may use the service."""
        # Compare with every key, so that the time taken does not show which key was close.
        matches = [hmac.compare_digest(known.encode(), (key or "").encode()) for known in self._keys]
        return not self._keys or any(matches)

    def admits(self, key: str | None) -> bool:
        """Whether this API key may use the service; counts a refusal."""
        return self._counted(self.is_valid(key))

    def client(self, key: str | None) -> Client | None:
        """The client with this API key; `None` if the key may not use the service. Counts a refusal."""
        if not self.admits(key):
            return None
        return Client(self._limited.get(key or ""), may_open_rooms=key not in self._without_rooms)

    async def live_client(self, credential: str | None) -> Client | None:
        """The client with this API key or client secret; `None` if it may open no live session. Counts a refusal."""
        secret = self.client_secret(credential)
        if secret is None:
            return self.client(credential)
        if self._counted(not await self.withdrawals.is_withdrawn(secret)):
            may_open_rooms = secret.rooms and secret.key not in self._without_rooms
            return Client(self._limited.get(secret.key), secret, may_open_rooms or self.is_open)
        return None

    def client_secret(self, credential: str | None) -> ClientSecret | None:
        """The client secret in a credential; `None` if it is not one, or is not valid now."""
        return client_secrets.verify(credential or "", self._keys or (self._signing_key,), time.time())

    def sign_client_secret(
        self, key: str | None, expires_at: int, session: dict[str, Any], rooms: bool = False
    ) -> ClientSecret:
        """Make a client secret for the owner of a valid API key. Raises like `client_secrets.sign`."""
        return client_secrets.sign(self._signing_key_of(key), expires_at, session, rooms)

    def own_client_secret(self, key: str | None, value: str) -> ClientSecret | None:
        """The client secret with this value, if it is valid and was made with this valid API key; else `None`."""
        return client_secrets.verify(value, (self._signing_key_of(key),), time.time())

    def _signing_key_of(self, key: str | None) -> str:
        return key if key and self._keys else self._signing_key

    def _counted(self, is_admitted: bool) -> bool:
        if not is_admitted:
            self._on_refused("unauthorized")
        return is_admitted


def header_key(headers: Mapping[str, str], schemes: Sequence[str] = ("bearer",)) -> str | None:
    """The key in the `Authorization` header; `None` without the header, or with another scheme.

    Args:
        headers: their names are in lower case, or case-insensitive.
        schemes: those that the dialect accepts, in lower case.
    """
    scheme, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() in schemes else None


def prefixed_key(subprotocols: Sequence[str], prefix: str) -> str | None:
    """The key in a subprotocol `PREFIXKEY`.

    Browsers cannot set headers on a WebSocket, so they offer the key as a subprotocol. The server never echoes it.
    """
    keys: Iterator[str] = (each.removeprefix(prefix) for each in subprotocols if each.startswith(prefix))
    return next(keys, None)
