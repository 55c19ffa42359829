"""Calls that were announced over HTTP with an API key, before Asterisk connects for them over AudioSocket.

An announcement holds a client secret in place of the key, so that the shared store learns no key.
"""

import json
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from tutti_server.app.sharing.store import SharedStore, StoreAway

VALID_S = 300
"""How long an announced call is waited for, in seconds."""
_NAME, _USED = "audiosocket:", "audiosocket-used:"


@dataclass(frozen=True, slots=True)
class Announcement:
    """A call that is expected."""

    secret: str
    """A client secret of the key with which the call was announced."""
    parameters: Mapping[str, str]
    """The options of the session, and what is passed on to subscribers."""


class Announcements:
    """The announced calls of a service. Every method raises `StoreAway` if the store cannot be reached."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store

    async def add(self, call: uuid.UUID, announcement: Announcement) -> bool:
        """Expect a call for `VALID_S`. False if one was announced under this id lately, whether it has begun or not."""
        value = json.dumps({"secret": announcement.secret, "parameters": dict(announcement.parameters)})
        return await self._store.put_new(f"{_NAME}{call}", value, VALID_S)

    async def use(self, call: uuid.UUID) -> Announcement | None:
        """The announcement of a call that begins; `None` if there is none, or it was used before."""
        value = await self._store.get(f"{_NAME}{call}")
        if not value or not await self._store.put_new(f"{_USED}{call}", "", VALID_S):
            return None
        # The id stays known for as long as it is used. The call is taken already, and no one else gets it.
        with suppress(StoreAway):
            await self._store.put(f"{_NAME}{call}", "", VALID_S)
        try:
            return Announcement(**json.loads(value))
        except (TypeError, ValueError):
            # Another program or version has written it. The call was not announced to this one.
            return None
