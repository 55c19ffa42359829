"""Client secrets that were withdrawn before they expired."""

import time
from collections.abc import Callable

from app.service.client_secrets import ClientSecret
from app.sharing.local_store import LocalStore
from app.sharing.store import SharedStore, StoreAway


class Withdrawals:
    """Remembers withdrawn secrets in the shared store until they expire."""

    def __init__(self, store: SharedStore, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._known = LocalStore()
        """Those that this gateway knows of, for when the store is away."""

    async def withdraw(self, secret: ClientSecret) -> None:
        """Let the secret open no more sessions at any gateway.

        Raises:
            StoreAway: the other gateways cannot be reached. The secret may open sessions as before.
        """
        await self._store.put(_name(secret), "", self._left_s(secret))
        await self._known.put(_name(secret), "", self._left_s(secret))

    async def is_withdrawn(self, secret: ClientSecret) -> bool:
        """Whether the secret was withdrawn. Without the store: whether this gateway knows of it."""
        if await self._known.get(_name(secret)) is not None:
            # The store may have lost it.
            return True
        try:
            is_withdrawn = await self._store.get(_name(secret)) is not None
        except StoreAway:
            return False
        if is_withdrawn:
            await self._known.put(_name(secret), "", self._left_s(secret))
        return is_withdrawn

    def _left_s(self, secret: ClientSecret) -> float:
        """How long the secret is valid yet, in seconds."""
        # One second more than that, as the clocks of machines differ a little.
        return max(secret.expires_at - self._clock(), 0.0) + 1.0


def _name(secret: ClientSecret) -> str:
    return f"withdrawn:{secret.id}"
