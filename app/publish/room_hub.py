"""The rooms of one gateway: claims names, lets sessions speak, and gives readers the rooms that they name."""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from secrets import token_hex, token_urlsafe

from tutti_server.app.background import in_background
from tutti_server.app.errors import CLOSE_OVERLOADED, CLOSE_POLICY, RETRY_AFTER_S, LimitExceeded, SessionError
from tutti_server.app.publish.room_follower import Followed, RoomConfig, RoomFollower
from tutti_server.app.publish.room_speaker import Claim, Speaker, name_key, read_record
from tutti_server.app.sharing.emptied import EmptiedWatch
from tutti_server.app.sharing.leases import Leases
from tutti_server.app.sharing.store import SharedStore, StoreAway

logger = logging.getLogger(__name__)

NAME_BYTES = 16
"""The random bytes of a name that the server makes: 128 bits cannot be guessed."""
TOKEN_BYTES = 24
FIRST_KEEP_S = 10.0
"""How long a name is kept for a session that has not begun to speak, in seconds."""
BEGIN_S = 2.0
"""How long a reader waits for the beginning of a room whose name was claimed a moment ago, in seconds."""
WRITE_AT_ONCE = 8
"""How many rooms are written again at the same time: other calls of the store need turns, too."""
LEAVE_S = 2.0
"""How long the last events of a stopping server may take, in seconds."""


class UnknownRoom(Exception):
    """Raised when there is no room of this name."""


class Rooms:
    """Connects speakers and readers through the shared store, at whichever gateway each of them is."""

    def __init__(
        self, store: SharedStore, config: RoomConfig, on_unreadable: Callable[[], None] = lambda: None
    ) -> None:
        """Prepare the rooms of this store; `on_unreadable` is called for each value that cannot be read."""
        self._store = store
        self._on_unreadable = on_unreadable
        self._config = config
        self._leases = Leases(store)
        self._watch = EmptiedWatch(store, "rooms", self._write_again)
        self._follower = RoomFollower(store, config, on_unreadable=on_unreadable)
        self._speaking: dict[asyncio.Task[None], Speaker] = {}
        self._giving_up: set[asyncio.Task[None]] = set()
        self._n_readers = 0
        self._has_no_reader = asyncio.Event()
        self._has_no_reader.set()
        self.is_draining = False
        """The server is stopping: readers are sent elsewhere."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow rooms while the context is open, and write what speakers have left at its end."""
        async with self._leases.running(), self._watch.running(), in_background(self._follower.run()):
            try:
                yield
                if self._speaking:
                    await asyncio.wait(self._speaking, timeout=LEAVE_S)
            finally:
                tasks = (*self._speaking, *self._giving_up)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def claim(self, account: str, name: str | None, token: str | None) -> Claim:
        """Make a room, or go on in one.

        Args:
            account: of the client. A room belongs to the account that has made it, whoever has its token.
            name: `None` for one that cannot be guessed.
            token: of the client that has spoken in the room before. A room that does not exist any more begins anew.

        Raises:
            SessionError: the room belongs to another owner, or the store cannot be reached.
        """
        is_new = False
        name, token = name or token_urlsafe(NAME_BYTES), token or token_urlsafe(TOKEN_BYTES)
        owner = hashlib.sha256(token.encode()).hexdigest()
        try:
            record = await self._record(name)
            if record is None:
                # It may belong to a speaker whose gateway has not noticed yet that the store was emptied.
                await self._watch.settled()
                first = {"id": token_hex(6), "owner": owner, "account": account}
                # Of two clients that choose a name in the same moment, one puts it.
                is_new = await self._store.put_new(name_key(name), json.dumps(first), FIRST_KEEP_S)
                record = first if is_new else await self._record(name)
            # Records that an older version has written name no account.
            if record is None or (record["owner"], record.get("account", account)) != (owner, account):
                expected = "choose another name, or send the token of this one"
                message = f"room.name: {name} belongs to another speaker; {expected}"
                raise SessionError("room_taken", message, CLOSE_POLICY)
        except StoreAway:
            message = f"room: rooms cannot be opened while Redis cannot be reached; try again in {RETRY_AFTER_S} s"
            raise LimitExceeded("overloaded", message, CLOSE_OVERLOADED) from None
        return Claim(id=record["id"], name=name, token=token, owner=owner, account=account, is_new=is_new)

    def give_up(self, claim: Claim) -> None:
        """Let others have the name of a room that was made for a session which has not started."""
        if claim.is_new:
            task = asyncio.create_task(self._free(claim))
            self._giving_up.add(task)
            task.add_done_callback(self._giving_up.discard)

    async def _free(self, claim: Claim) -> None:
        # Without the store, the name becomes free by itself.
        with suppress(StoreAway):
            if await self._store.get(name_key(claim.name)) == claim.record:
                await self._store.keep(name_key(claim.name), 0.0)

    def speak(self, claim: Claim) -> Speaker:
        """Let a session speak in a room until it leaves."""
        speaker = Speaker(claim, self._store, self._leases, self._follower, self._config)
        task = asyncio.create_task(speaker.run())
        self._speaking[task] = speaker
        task.add_done_callback(self._speaking.pop)
        return speaker

    def speaks(self, speaker: Speaker) -> bool | None:
        """Whether this session is the one that readers receive; `None` if this gateway does not know it."""
        if speaker.has_lost_name:
            return False
        stream = self._follower.stream_of(speaker.claim.id)
        return stream == speaker.stream if stream else None

    @asynccontextmanager
    async def follow(self, name: str) -> AsyncIterator[Followed]:
        """Follow a room while the context is open.

        Raises:
            UnknownRoom: there is none of this name, or its text is not kept any more.
            StoreAway: that is not known, as the store cannot be reached.
        """
        record = await self._record(name)
        if record is None:
            raise UnknownRoom(name)
        if not self._follower.stream_of(record["id"]):
            # Its text is written again after its name.
            await self._watch.settled()
        async with self._follower.following(record["id"], name) as followed:
            await _wait_for_beginning(followed)
            self._n_readers += 1
            self._has_no_reader.clear()
            try:
                yield followed
            finally:
                self._n_readers -= 1
                if not self._n_readers:
                    self._has_no_reader.set()

    async def drain(self, *, others_stop: bool = False) -> None:
        """Send all readers elsewhere, and wait until the last one has gone, for a limited time.

        Args:
            others_stop: the sessions of the other gateways of this service have ended, too. Their last texts may still
                be on their way, and readers receive them first.
        """
        if others_stop:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self._follower.wait_until_left()
        self.is_draining = True
        self._follower.wake_all()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._has_no_reader.wait()

    async def _write_again(self) -> None:
        """Give a store that was emptied the rooms in which sessions of this gateway speak.

        The names come first, so that no one else takes them. A room that fails is written again by its own speaker.
        """
        await self._leases.renew()
        speakers = list(self._speaking.values())
        failed = await _failed(speakers, Speaker.put_name)
        for speaker in failed | await _failed(speakers, Speaker.put_text):
            speaker.write_again_later()

    async def _record(self, name: str) -> dict[str, str] | None:
        """What gateways know under this name; `None` also for what no gateway has written."""
        text = await self._store.get(name_key(name))
        record = read_record(text) if text is not None else None
        if record is None and text is not None:
            self._on_unreadable()
        return record


async def _failed(speakers: Collection[Speaker], work: Callable[[Speaker], Awaitable[None]]) -> set[Speaker]:
    """Do this for a few speakers at a time. Returns those for which it has failed."""
    turns = asyncio.Semaphore(WRITE_AT_ONCE)

    async def do(speaker: Speaker) -> None:
        async with turns:
            await work(speaker)

    failed = set()
    for speaker, result in zip(speakers, await asyncio.gather(*map(do, speakers), return_exceptions=True), strict=True):
        if isinstance(result, BaseException):
            failed.add(speaker)
            if not isinstance(result, StoreAway):
                logger.error("room %s cannot be written again", speaker.claim.id, exc_info=result)
    return failed


async def _wait_for_beginning(followed: Followed) -> None:
    """Wait until a session has begun to speak. Raises `UnknownRoom` if none has, in time."""
    try:
        async with asyncio.timeout(BEGIN_S):
            while not followed.room.stream:
                await followed.changed.wait()
    except TimeoutError:
        raise UnknownRoom(followed.room.name) from None
