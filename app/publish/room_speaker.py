"""Publishes one session in a room: writes its events to the room's log, and keeps what late readers need."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from secrets import token_hex

from tutti_server.app.publish.hls_lines import SEGMENT_S
from tutti_server.app.publish.outbox import CallMessage, Outbox
from tutti_server.app.publish.room_entries import Begun, Ended, Entry, Left, Passed, write_entry
from tutti_server.app.publish.room_follower import Followed, RoomConfig, RoomFollower, lease_name, log_name, text_name
from tutti_server.app.sharing.leases import Leases
from tutti_server.app.sharing.store import Lease, SharedStore, StoreAway
from tutti_server.app.sharing.waiting import LAST_WORDS_S, wait_until_up

logger = logging.getLogger(__name__)

SAVE_EVERY = 200
"""A snapshot is made after this many entries: a log keeps more of them."""
SAVE_EVERY_S = 120.0
"""A snapshot is made after this time, in seconds, if there is anything new."""
FOLD_S = 5.0
"""How long a session that has left waits until its gateway has read its last events, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A room, and the right to speak in it."""

    id: str
    """Tells the room from earlier ones of its name."""
    name: str
    token: str
    """Proves to any gateway that the room belongs to the client."""
    owner: str
    """What gateways keep of the token."""
    account: str
    """The account of the client that has made the room."""
    is_new: bool = False
    """Whether the room was made with this claim."""

    @property
    def record(self) -> str:
        """What gateways know under the name of the room."""
        return json.dumps({"id": self.id, "owner": self.owner, "account": self.account})


class Speaker:
    """One session that speaks in a room. Its owner calls `begin`, `publish` and `leave`; `run` does the work."""

    def __init__(
        self,
        claim: Claim,
        store: SharedStore,
        leases: Leases,
        follower: RoomFollower,
        config: RoomConfig,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.claim = claim
        self._store = store
        self._leases = leases
        self._follower = follower
        self._config = config
        self._now = now
        self._clock = clock
        self._clock_zero = now() - clock()
        """The zero of `clock`, in seconds since 1970."""
        self.stream = token_hex(8)
        """Stands for the session in the log of the room."""
        self._begun = ""
        """The first entry of the session. It is never lost: without it, no reader gets what follows."""
        self._outbox: Outbox[CallMessage] = Outbox()
        self._next_number = 0
        self._has_left = asyncio.Event()
        self._was_away = False
        """The store could not be reached since the last snapshot, and may have forgotten everything."""
        self.has_lost_name = False
        """The name leads to another room, which was made while the store did not know of this one."""

    def begin(self, title: str, resumed_from_s: Sequence[float] | None) -> None:
        """Take the room over from the session before.

        Args:
            title: of the room; empty for the one that it has.
            resumed_from_s: from when on the session decodes again, for each channel; `None` for a new session.
        """
        entry = Begun(stream=self.stream, at=self._time(), title=title, resumed_from_s=resumed_from_s)
        self._begun = write_entry(entry)

    def publish(self, message: str, replaces: str | None = None) -> None:
        """Send an event to the readers. Never waits: the oldest event is lost if too many do.

        Args:
            message: the event as JSON.
            replaces: while an older event with the same text here waits, this one replaces it. Such events may be lost
                without notice.
        """
        number = "null"
        if replaces is None:
            number, self._next_number = str(self._next_number), self._next_number + 1
        self._push(f'{{"kind":"spoken","stream":"{self.stream}","number":{number},"message":{message}}}', replaces)

    def leave(self, is_over: bool) -> None:
        """The session has ended. Unless it `is_over` for good, its client may come back. A second call does nothing."""
        if not self._has_left.is_set():
            if is_over:
                self._push_entry(Ended(stream=self.stream, at=self._time()))
            else:
                # Gateways compare it with their time of day.
                self._push_entry(Left(stream=self.stream, at=self._now()))
            self._outbox.close()
            self._has_left.set()

    async def run(self) -> None:
        """Write the log of the room until the session has left and everything is written."""
        lease = Lease(lease_name(self.claim.id), self.stream)
        self._leases.hold(lease)
        try:
            await self._write_all()
            async with asyncio.timeout(LAST_WORDS_S):
                await self._until_stored(self._save_last)
        except TimeoutError:
            logger.warning("the last events of room %s are lost: Redis cannot be reached", self.claim.id)
        finally:
            self._leases.drop(lease)

    async def put_name(self) -> None:
        """Keep the name, unless it leads to another room by now. Raises `StoreAway`."""
        key = name_key(self.claim.name)
        text = await self._store.get(key)
        if text is None:
            is_kept = await self._store.put_new(key, self.claim.record, self._keep_s)
        elif is_kept := (read_record(text) or {"id": self.claim.id})["id"] == self.claim.id:
            await self._store.put(key, self.claim.record, self._keep_s)
        if not is_kept and not self.has_lost_name:
            logger.warning("the name of room %s was lost with the store, and another room has it now", self.claim.id)
        self.has_lost_name = not is_kept

    async def put_text(self) -> None:
        """Make a snapshot of the room as it is known here. Raises `StoreAway`."""
        async with self._follower.following(self.claim.id, self.claim.name) as followed:
            await self._save(followed)

    def write_again_later(self) -> None:
        """The store may have lost the room: write it again as soon as it can be written."""
        self._was_away = True
        if not self._has_left.is_set():
            self._push_entry(Passed(stream=self.stream, at=self._time()))

    async def _write_again(self) -> None:
        await self.put_name()
        await self.put_text()
        self._was_away = False

    async def _write_all(self) -> None:
        assert self._begun
        loop = asyncio.get_running_loop()
        await self._until_stored(self._keep_up)
        # Readers that find the room must find its name as well.
        await self._append(self._begun)
        due = loop.time() + SEGMENT_S
        while True:
            # In a room that has ended, no time passes: it would go on.
            if loop.time() >= due and not self._has_left.is_set():
                due = loop.time() + SEGMENT_S
                await self._until_stored(self._keep_up)
            try:
                async with asyncio.timeout_at(due):
                    message = await self._outbox.pop()
            except TimeoutError:
                continue
            if message is None:
                return
            await self._append(message.texts[0])

    async def _keep_up(self) -> None:
        await self.put_name()
        await self._store.append(log_name(self.claim.id), write_entry(Passed(stream=self.stream, at=self._time())))
        async with self._follower.following(self.claim.id, self.claim.name) as followed:
            is_old = self._clock() - followed.saved_at >= SAVE_EVERY_S and followed.n_unsaved > 0
            if followed.n_unsaved >= SAVE_EVERY or is_old:
                await self._save(followed)

    async def _save_last(self) -> None:
        async with self._follower.following(self.claim.id, self.claim.name) as followed:
            try:
                async with asyncio.timeout(FOLD_S):
                    while followed.room.stream == self.stream and followed.room.left_at is None:
                        await followed.changed.wait()
            except TimeoutError:
                raise StoreAway("the log of the room cannot be read") from None
            if followed.room.stream == self.stream:
                await self.put_name()
                await self._save(followed)

    async def _save(self, followed: Followed) -> None:
        followed.n_unsaved, followed.saved_at = 0, self._clock()
        await self._store.put(text_name(self.claim.id), followed.snapshot(), self._keep_s)

    def _time(self) -> float:
        """Now, in seconds since 1970, as if no one had set the machine's clock since the session began.

        The room measures with it how long it has lasted.
        """
        return self._clock_zero + self._clock()

    @property
    def _keep_s(self) -> float:
        """How long the text is kept from now on, if nothing renews it."""
        return self._config.gone_s + self._config.keep_s + SAVE_EVERY_S

    def _push_entry(self, entry: Entry) -> None:
        self._push(write_entry(entry))

    def _push(self, text: str, replaces: str | None = None) -> None:
        # If it takes the place of another one, the number that is missing tells the readers.
        self._outbox.push_over(CallMessage((text,), replaces))

    async def _append(self, text: str) -> None:
        async def append() -> None:
            await self._store.append(log_name(self.claim.id), text)

        await self._until_stored(append)

    async def _until_stored(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat this until the store takes it. Raises `TimeoutError` as `wait_until_up` does."""
        while True:
            try:
                if self._was_away:
                    await self._write_again()
                await work()
                return
            except StoreAway:
                self._was_away = True
                await wait_until_up(self._store, self._has_left)


def name_key(name: str) -> str:
    """The value that holds the record of a room, by its name."""
    return f"room-name:{name}"


def read_record(text: str) -> dict[str, str] | None:
    """What gateways know under the name of a room; `None` for what no gateway has written."""
    try:
        record: dict[str, str] = json.loads(text)
        if all(isinstance(record[field], str) for field in ("id", "owner")):
            return record
    except (KeyError, RecursionError, TypeError, ValueError):
        pass
    return None
