"""Signed requests that were taken, so that none is taken twice while its signature is valid."""

import hashlib

from tutti_server.app.sharing.local_store import LocalStore
from tutti_server.app.sharing.store import SharedStore, StoreAway


class UsedNonces:
    """Remembers the nonces of signatures in the shared store for as long as these are valid."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._known = LocalStore()
        """The nonces that this gateway has taken, for when the store is away."""

    async def use(self, nonce: str, keep_s: float) -> bool:
        """Use a nonce. False if it was used before: at any gateway, or without the store at this one.

        Args:
            nonce: of a valid signature.
            keep_s: how long the signature may be valid yet, in seconds.
        """
        # A client may choose a nonce as long as a header.
        name = f"nonce:{hashlib.sha256(nonce.encode()).hexdigest()}"
        if not await self._known.put_new(name, "", keep_s):
            return False
        try:
            return await self._store.put_new(name, "", keep_s)
        except StoreAway:
            return True
