"""What a session asks of the engine, and how the answers find the part of the session that asked.

Nothing here acts at once. `SessionPort.submit`, `cancel`, `send` and `close` append effects to a list. The session
returns the list to its shell, which performs the effects in order.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from typing import NamedTuple, Protocol

from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.core.effects import (
    Cancel,
    Close,
    Effect,
    EmbedSpeech,
    LimitSpeakers,
    ScoreTurn,
    Send,
    Submit,
    Translate,
)
from tutti_server.app.session.core.windows import EndedWindow
from tutti_server.app.session.messages import events
from tutti_server.app.session.observers.ruled_text import RuledText
from tutti_server.app.session.observers.speaker_labels import LAST_WAIT_S, SpeakerLabels
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE


class RequestKind(Enum):
    """What the text of a request is for."""

    FINAL = auto()
    """The final text of an ended window. The session cannot go on without it."""
    SPECULATIVE = auto()
    """The open window, decoded as if its utterance ended now. The session can do without it."""
    REDECODE = auto()
    """Missed speech of an ended window, decoded again. The session can do without it."""
    INTERIM = auto()
    """An interim of the open window. The session can do without it."""
    TRANSLATION = auto()
    """What is left of a request whose text is known and is being translated; or earlier text, translated again."""


class RequestOwner(Protocol):
    """A part of a channel that submits requests."""

    channel: int
    """The number of the channel."""

    def on_engine_event(self, request: "DecodeRequest", event: api.EngineEvent) -> None:
        """Process an event of the request."""
        ...

    def on_dropped(self, request: "DecodeRequest") -> None:
        """Go on without the request: the engine had no room or no time for it. Never called for a `FINAL`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class DecodeRequest:
    """Audio that the engine was asked to decode, from `SessionPort.submit` to its last event."""

    id: int
    """Unique within the session."""
    kind: RequestKind
    owner: RequestOwner
    """The part of a channel that receives the events of the request."""
    window: EndedWindow | None
    """The ended window that its text belongs to; `None` for the open window."""


OnTranslated = Callable[[int, str, str], None]
"""Receives the answer to a `Translate`: its id, the translation, and why there is none."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """From where on another session may continue this one: for each channel, times in seconds."""

    until_s: tuple[float, ...]
    """The time before which no more text comes. None of them ever decreases."""
    detector_from_s: tuple[float | None, ...]
    """The time at which the detector must begin to find the same speech after this time, if that is known."""


class CountsWindows(Protocol):
    """The final texts of a channel, as far as `SessionPort` needs them."""

    n_done: int
    """Windows whose text was sent."""


class PendingFlush(NamedTuple):
    """A flush that is answered when all text of the audio before it was sent."""

    id: events.FlushId
    waits_for: list[tuple[CountsWindows, int]]
    """The final texts of the flushed channels, and how many windows of each must be done first."""


class HasFinalUntil(Protocol):
    """A channel, as far as `SessionPort` needs it."""

    @property
    def final_until(self) -> int:
        """Position before which no more text comes; it never decreases."""
        ...

    @property
    def detector_from(self) -> int | None:
        """Return where a detector must begin to find the same speech from `final_until` on, if that is known."""
        ...

    @property
    def translated_until_s(self) -> float:
        """The time before which no more translations come; it never decreases."""
        ...


class SessionPort:
    """What the channels of a session see of it: its numbers, its timeline, its requests and its effects."""

    def __init__(self, session_id: str, final_priority: api.Priority = api.Priority.FINAL) -> None:
        self.flushes: deque[PendingFlush] = deque()
        """The flushes that are not answered yet. They are answered in order."""
        self.from_s = 0.0
        """The time of the session's first sample on its timeline, in seconds; above 0 if the session was resumed."""
        self.own_from_s = 0.0
        """All channels had their final text before this time in the lost session, if it was resumed."""
        self.own_until_s = 0.0
        """A session that goes on with this one begins here: the newest time that the client was sent."""
        self.channels: list[HasFinalUntil] = []
        """All channels, once the session has started."""
        self.requests: dict[int, DecodeRequest] = {}
        """The requests that the engine has not finished, by their ids."""
        self.translating: dict[int, OnTranslated] = {}
        """Who receives the translations of text that are under way, by the ids of the requests."""
        self._troubled: set[str] = set()
        """The languages whose last translation failed."""
        self._session_id = session_id
        self._priorities = {
            RequestKind.FINAL: final_priority,
            RequestKind.SPECULATIVE: api.Priority.SPECULATIVE,
            RequestKind.REDECODE: final_priority,
            RequestKind.INTERIM: api.Priority.INTERIM,
            # Only of earlier text: the text of now comes first.
            RequestKind.TRANSLATION: api.Priority.FILE,
        }
        """The priority of each kind of request in the engine's queue."""
        self._effects: list[Effect] = []
        self.request_ids, self.utterance_numbers, self.segment_numbers = count(), count(), count()
        """The numbers of what is new, over all channels."""
        self.speakers: SpeakerLabels | None = None
        """Who speaks; `None` if the client did not ask."""
        self.ruled_text: RuledText | None = None
        """The rules for text; `None` if the client has none."""

    # Times.

    def seconds(self, position: int) -> float:
        """A position in samples as a time on the session's timeline, in seconds."""
        return round(self.from_s + position / SAMPLE_RATE, 3)

    def acknowledged(self) -> Acknowledged:
        """From where on another session may continue this one."""
        starts = [channel.detector_from for channel in self.channels]
        return Acknowledged(
            tuple(self.seconds(channel.final_until) for channel in self.channels),
            tuple(None if start is None else self.seconds(start) for start in starts),
        )

    def translated_until(self) -> tuple[float, ...]:
        """Return for each channel the time before which no more translations come."""
        return tuple(channel.translated_until_s for channel in self.channels)

    # Decode requests.

    def submit(
        self,
        owner: RequestOwner,
        kind: RequestKind,
        samples: Samples,
        options: api.DecodeOptions,
        utterance: int,
        window: EndedWindow | None = None,
    ) -> DecodeRequest:
        """Append the effect that asks the engine to decode these samples of an utterance.

        `owner` will receive the events.
        """
        request = DecodeRequest(next(self.request_ids), kind, owner, window)
        self.requests[request.id] = request
        engine_window = api.Window(
            samples=samples,
            session=self._session_id,
            channel=owner.channel,
            priority=self._priorities[kind],
            options=options,
        )
        self._effects.append(Submit(request.id, engine_window, utterance, kind is RequestKind.REDECODE))
        return request

    def cancel(self, request: DecodeRequest) -> None:
        """Append the effect that withdraws a request which the engine has not finished; no more events come of it."""
        if self.requests.pop(request.id, None):
            self._effects.append(Cancel(request.id))

    # Effects.

    def send(self, event: events.Event) -> None:
        """Append the effect that sends an event to the client."""
        for each in self.ruled_text.applied(event) if self.ruled_text else (event,):
            if isinstance(each, events.Utterance):
                self.own_until_s = min(each.resume_from_s)
            self._effects.append(Send(self.speakers.labelled(each) if self.speakers else each))

    def answer_flushes(self) -> None:
        """Answer the flushes whose audio is final: after each window, as no later text may come before the answer."""
        while self.flushes and all(finals.n_done >= n for finals, n in self.flushes[0].waits_for):
            self.send(events.Flushed(self.flushes.popleft().id))

    def score_turn(self, channel: int, audio_end: int, samples: Samples) -> None:
        """Append the effect that has the turn model score the pause of a channel at this position."""
        self._effects.append(ScoreTurn(channel, audio_end, samples))

    def note_frame(self, position: int, frame: Samples, is_voiced: bool) -> None:
        """Note a frame that begins at this position, for the speakers, if the client asked for them."""
        if self.speakers:
            for notice in self.speakers.push(position, frame, is_voiced):
                self.send(notice)
            self.embed_speech()

    def end_run(self) -> None:
        """Speech ends here, because the client says so: its speaker is asked for without waiting for silence."""
        if self.speakers:
            for notice in self.speakers.end_run():
                self.send(notice)
            self.embed_speech()

    def embed_speech(self) -> None:
        """Append the effect that finds the speakers of the speech that waits for it, if there is any."""
        if self.speakers and (stretches := self.speakers.submit()):
            self._effects.append(EmbedSpeech(self.speakers.voices, stretches))

    def await_speakers(self) -> bool:
        """Whether speakers are still to come at the end. Appends the effect that limits the wait for them."""
        if not self.speakers or not self.speakers.is_waiting:
            return False
        if self.speakers.begin_last_wait():
            self._effects.append(LimitSpeakers(LAST_WAIT_S))
        return True

    def translate(self, channel: int, language: str, source: str | None, text: str, on_translated: OnTranslated) -> int:
        """Append the effect that has a text translated. Returns its id."""
        id = next(self.request_ids)
        self.translating[id] = on_translated
        text = self.ruled_text.redacted(channel, text) if self.ruled_text else text
        self._effects.append(Translate(id=id, channel=channel, language=language, source=source, text=text))
        return id

    def note_trouble(self, language: str, reason: str) -> None:
        """Report that translations to a language fail, once until one succeeds."""
        if language not in self._troubled:
            self._troubled.add(language)
            self.send(events.Notice("translation_failed", f"{language}: {reason}; text goes on without translation"))

    def end_trouble(self, language: str) -> None:
        """Note that a translation to a language has succeeded."""
        self._troubled.discard(language)

    def close(self, code: int, reason: str) -> None:
        """Append the effects that withdraw all requests and close the connection."""
        self._effects += [Cancel(request_id) for request_id in (*self.requests, *self.translating)]
        self.requests.clear()
        self.translating.clear()
        self._effects.append(Close(code, reason))

    def pop_effects(self) -> list[Effect]:
        """The effects since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects
