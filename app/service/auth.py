"""Who may use the service, and how much: API keys, client secrets, and where each client carries its credential."""

import hmac
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tutti_server.app.errors import RequestError
from tutti_server.app.service import client_secrets
from tutti_server.app.service.account_service import NO_ACCOUNTS, AccountService, KeyDirectory
from tutti_server.app.service.accounts import ANYONE, OPERATOR, account_of
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.app.service.client_secrets import ClientSecret
from tutti_server.app.service.key_limits import KeyLimits
from tutti_server.app.service.scopes import CLIENT_SCOPES, Scope
from tutti_server.app.service.used_nonces import UsedNonces
from tutti_server.app.service.withdrawals import Withdrawals
from tutti_server.app.sharing.store import SharedStore


@dataclass(frozen=True, slots=True)
class Client:
    """A client whose credential is valid."""

    key: ApiKey | None = None
    """The key that its sessions and uploads count for; `None` for one without a name, or if clients need none."""
    secret: ClientSecret | None = None
    """The client secret that it has shown in place of a key."""
    may_open_rooms: bool = True
    """Whether its sessions may be published in rooms."""
    account: str = ANYONE
    """The account whose calls, rooms and jobs this client may see; see `accounts.py`."""

    @property
    def scopes(self) -> frozenset[Scope]:
        """The scopes of the client's key: what it may be used for."""
        return self.key.scopes if self.key else CLIENT_SCOPES


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
        named_keys: Callable[[], Mapping[str, ApiKey]] = dict,
    ) -> None:
        """Create the check for one service.

        Args:
            signing_key: signs client secrets while there are no API keys. All gateways have the same one.
            on_refused: called with a reason for each credential, session and upload that is refused: `unauthorized`,
                `scope` or `key_limit`.
            store: holds what all gateways must know.
            named_keys: gives the keys that have a name now, with their limits and rights, by what clients send.
        """
        self._unnamed = tuple(keys)
        self._signing_key = signing_key
        self._on_refused = on_refused
        self._named = named_keys
        self._accounts = NO_ACCOUNTS
        self.limits = KeyLimits(store, lambda: on_refused("key_limit"))
        self.withdrawals = Withdrawals(store)
        self.nonces = UsedNonces(store)

    def use(self, accounts: AccountService) -> None:
        """Accept the keys of these accounts as well, and count their audio. Called before the first client comes."""
        self._accounts = accounts
        self.limits.usage, self.limits.meters = accounts.usage, accounts.meters

    @property
    def _directory(self) -> KeyDirectory | None:
        """The keys that are records; `None` if there are none."""
        return self._accounts.directory

    @property
    def _keys(self) -> tuple[str, ...]:
        return (*self._unnamed, *self._named())

    @property
    def is_open(self) -> bool:
        """Whether clients need no credential, so that nothing is known of them before their first message."""
        return not self._keys and self._directory is None

    def holder(self, client: Client) -> str:
        """The account that the client's uploads and subscribers count for; empty where there is one key at most."""
        return "" if self._directory is None and len(self._keys) <= 1 else client.account

    def client(self, key: str | None, scope: Scope = "live") -> Client | None:
        """The client with this API key; `None` if the key may not use the service. Counts a refusal.

        Raises:
            RequestError: 403 if the key may be used for other things only; 503 if it cannot be known whether the key is
                valid, as the database of keys is away.
        """
        client = self.known_client(key)
        self._counted(client is not None)
        return self._within(client, scope) if client else None

    async def live_client(self, credential: str | None) -> Client | None:
        """The client with this API key or client secret; `None` if it opens no live session. Raises like `client`."""
        secret = self.client_secret(credential)
        if secret is None:
            return self.client(credential)
        if not self._counted(not await self.withdrawals.is_withdrawn(secret)):
            return None
        owner = self._owner(secret)
        may_open_rooms = (secret.rooms and owner.may_open_rooms) or self.is_open
        return self._within(replace(owner, secret=secret, may_open_rooms=may_open_rooms), "live")

    def client_without_key(self) -> Client:
        """The client of a call that shows no key, and is taken all the same because of where it comes from.

        Its account is that of the only key without a name, which is the operator's own. Where there are several, or
        none, no key's.
        """
        if self.is_open:
            return Client()
        named = self._named()
        unnamed = [key for key in self._unnamed if key not in named]
        return Client(account=account_of(None, unnamed[0]) if len(unnamed) == 1 else OPERATOR)

    def client_secret(self, credential: str | None) -> ClientSecret | None:
        """The client secret in a credential; `None` if it is not one, or is not valid now."""
        value = credential or ""
        if key_id := client_secrets.key_id_of(value):
            if self._directory is None or (record := self._directory.find_id(key_id)) is None:
                return None
            return client_secrets.verify(value, (self._directory.signing_key(record.id),), time.time())
        keys = (self._signing_key,) if self.is_open else self._keys
        return client_secrets.verify(value, keys, time.time())

    def sign_client_secret(
        self, key: str | None, expires_at: int, session: dict[str, Any], rooms: bool = False
    ) -> ClientSecret:
        """Make a client secret for the owner of a valid API key. Raises like `client_secrets.sign`."""
        signing_key, key_id = self._signing_key_of(key)
        return client_secrets.sign(signing_key, expires_at, session, rooms, key_id)

    def own_client_secret(self, key: str | None, value: str) -> ClientSecret | None:
        """The client secret with this value, if it is valid and was made with this valid API key; else `None`."""
        signing_key, key_id = self._signing_key_of(key)
        if client_secrets.key_id_of(value) != key_id:
            return None
        return client_secrets.verify(value, (signing_key,), time.time())

    def known_client(self, key: str | None) -> Client | None:
        """The client with this API key, whatever it may be used for; `None` if it is not valid.

        Raises:
            RequestError: it cannot be known, as the database of keys is away.
        """
        if self.is_open:
            return Client()
        # Compare with every key, so that the time taken does not show which key was close.
        matches = [known for known in self._keys if hmac.compare_digest(known.encode(), (key or "").encode())]
        if matches:
            named = self._named().get(matches[0])
        elif record := self._directory.find(key) if self._directory else None:
            named = record.api_key
        else:
            return None
        return Client(named, may_open_rooms=named is None or named.may_open_rooms, account=account_of(named, key or ""))

    def _owner(self, secret: ClientSecret) -> Client:
        if not secret.key_id:
            return self.known_client(secret.key) or Client()
        record = self._directory.find_id(secret.key_id) if self._directory else None
        assert record, "a valid secret was verified with its record"
        key = record.api_key
        return Client(key, may_open_rooms=key.may_open_rooms, account=account_of(key, ""))

    def _within(self, client: Client, scope: Scope) -> Client:
        """The client, if it may use this; counts a refusal."""
        if scope not in client.scopes:
            self._on_refused("scope")
            name = f"the key {client.key.name}" if client.key else "this key"
            allowed = ", ".join(sorted(client.scopes)) or "none"
            raise RequestError(403, f"expected a key with the scope {scope}; {name} has {allowed}", code="scope")
        return client

    def _signing_key_of(self, key: str | None) -> tuple[str, str]:
        """What signs the secrets of a valid key, and the id of its record in the database, if it has one."""
        if self._directory is not None and (record := self._directory.find(key)) is not None:
            return self._directory.signing_key(record.id), record.id
        return (key if key and self._keys else self._signing_key), ""

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
