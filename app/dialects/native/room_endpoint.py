"""Publishes the session of one connection in a room, if its client wants that and may do it."""

from collections.abc import Iterable
from contextlib import ExitStack

from tutti_server.app.errors import CLOSE_POLICY, SessionError
from tutti_server.app.publish.room_speaker import Claim, Speaker
from tutti_server.app.service.auth import Client
from tutti_server.app.service.service import Service
from tutti_server.app.session.messages import commands, events

PUBLISHED = ("interim", "segment", "utterance", "translation")
"""The events that readers of a room get. The others are about the session."""


TAKEN_OVER = events.Notice("room_taken_over", "another session has this room now; readers do not receive this one")


class Publication:
    """A `Publisher` that opens rooms of the service."""

    def __init__(self, service: Service, client: Client) -> None:
        self._service = service
        self._client = client
        self._claim: Claim | None = None
        """The room that is open for a session which has not started."""
        self._start = commands.Start()
        self._speaker: Speaker | None = None
        self._is_over = False
        self._speaks: bool | None = None
        """Readers received this session when it was looked at last; `None` if they never did."""
        self._counted = ExitStack()
        """Ends that the metrics count the room."""

    async def open(self, start: commands.Start) -> None:
        """See `Publisher`."""
        assert start.room
        self._check()
        self._counted.enter_context(self._service.metrics.rooms.rooms.track_inprogress())
        self._claim = await self._service.rooms.claim(self._client.account, start.room.name, start.room.token)
        self._start = start

    def begin(self) -> dict[str, str] | None:
        """See `Publisher`."""
        claim, room, resume = self._claim, self._start.room, self._start.resume
        if claim is None or room is None:
            return None
        self._speaker = self._service.rooms.speak(claim)
        self._speaker.begin(room.title, resume.from_s if resume else None)
        return {"name": claim.name, "path": f"/captions/{claim.name}", "token": claim.token}

    def publish(self, event: events.Event, message: str) -> None:
        """See `Publisher`. Only a session that its client has stopped is over for good."""
        if self._speaker is None:
            return
        if type(event).__name__.lower() in PUBLISHED:
            replaces = f"interim {event.channel}" if isinstance(event, events.Interim) else None
            self._speaker.publish(message, replaces)
        elif isinstance(event, events.Stopped):
            self._is_over = True

    def notices(self) -> Iterable[events.Notice]:
        """See `Publisher`."""
        speaks = self._service.rooms.speaks(self._speaker) if self._speaker is not None else None
        if speaks is None:
            return ()
        assert self._speaker
        if self._speaks is None and not speaks and not self._speaker.has_lost_name:
            # The room still shows the session before.
            return ()
        spoke, self._speaks = self._speaks is not False, speaks
        return (TAKEN_OVER,) if spoke and not speaks else ()

    def leave(self) -> None:
        """Tell the room that the connection has ended."""
        if self._speaker is not None:
            self._speaker.leave(self._is_over)
        elif self._claim is not None:
            self._service.rooms.give_up(self._claim)
        self._counted.close()

    def _check(self) -> None:
        """Raise `SessionError` for a room that the client may not open."""
        if not self._service.settings.max_room_readers:
            raise SessionError("no_rooms", "room: expected null, as this server has no rooms", CLOSE_POLICY)
        if not self._service.is_known_everywhere:
            message = "room: expected null, as with more than one gateway rooms need TUTTI_REDIS_URL"
            raise SessionError("no_rooms", message, CLOSE_POLICY)
        if not self._client.may_open_rooms:
            message = "room: expected null, as this API key or client secret may publish no rooms"
            raise SessionError("room_not_allowed", message, CLOSE_POLICY)
