"""Client secrets that were withdrawn before they expired."""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from tutti_server.app.service.client_secrets import ClientSecret
from tutti_server.app.sharing.emptied import EmptiedWatch
from tutti_server.app.sharing.store import SharedStore, StoreAway


class Withdrawals:
    """Remembers withdrawn secrets in the shared store until they expire."""

    def __init__(self, store: SharedStore, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._watch = EmptiedWatch(store, "withdrawals", self._write_again)
        self._known: dict[str, float] = {}
        """The withdrawn secrets that this gateway knows, for when the store is away, and when each is forgotten."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Give a store that was emptied what this gateway knows, while the context is open."""
        return self._watch.running()

    async def withdraw(self, secret: ClientSecret) -> None:
        """Let the secret open no more sessions at any gateway.

        Raises:
            StoreAway: the other gateways cannot be reached. The secret may open sessions as before.
        """
        await self._store.put(_name(secret), "", _ends_at(secret) - self._clock())
        self._note(secret)

    async def is_withdrawn(self, secret: ClientSecret) -> bool:
        """Whether the secret was withdrawn. Without the store: whether this gateway knows of it."""
        if _name(secret) in self._known:
            return True
        try:
            is_withdrawn = await self._store.get(_name(secret)) is not None
        except StoreAway:
            return False
        if is_withdrawn:
            self._note(secret)
        return is_withdrawn

    def _note(self, secret: ClientSecret) -> None:
        """Remember a withdrawn secret, and forget those that have expired."""
        self._known = self._current() | {_name(secret): _ends_at(secret)}

    def _current(self) -> dict[str, float]:
        return {name: ends_at for name, ends_at in self._known.items() if ends_at > self._clock()}

    async def _write_again(self) -> None:
        for name, ends_at in self._current().items():
            await self._store.put(name, "", ends_at - self._clock())


def _name(secret: ClientSecret) -> str:
    return f"withdrawn:{secret.id}"


def _ends_at(secret: ClientSecret) -> float:
    """When the secret need not be remembered any more, in seconds since 1970."""
    # One second more than it is valid, as the clocks of machines differ a little.
    return secret.expires_at + 1.0
