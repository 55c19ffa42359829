"""Translations of the final text of one channel, to every language that the client asked for, in order.

The original never waits for them. English is translated by the engine, from the encoding of the window; other languages
are translated by a service, from the text. What is translated is the text of one window at a time.
"""

from collections import deque
from dataclasses import dataclass, field

from tutti_server.app.errors import BadStart
from tutti_server.app.languages import WITHOUT_SPACES
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.core.effects import Translator
from tutti_server.app.session.core.options import Targets
from tutti_server.app.session.core.port import DecodeRequest, RequestKind, SessionPort
from tutti_server.app.session.core.windows import EndedWindow, EngineTranslation
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.text.hallucination_filter import HallucinationFilter
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE

ENGLISH = "en"
MAX_OPEN = 64
"""The most translations of a channel to one language that are under way; the text after them is not translated."""
MAX_OVERLAP = 0.5
"""A segment of missed speech is left out where the window's own translation covers more than this part of its time."""


def languages_of(model: api.ModelInfo, translator: Translator | None) -> tuple[str, ...]:
    """The codes of the languages that a session can ask for."""
    by_engine = (ENGLISH,) if _can_translate(model) else ()
    return tuple(dict.fromkeys((*by_engine, *(translator.languages if translator else ()))))


def _can_translate(model: api.ModelInfo) -> bool:
    return model.is_multilingual and "translate" in model.tasks


def targets_of(start: commands.Start, model: api.ModelInfo, translator: Translator | None) -> Targets:
    """Who translates to which language.

    Raises:
        BadStart: none can translate to one of them.
    """
    known = languages_of(model, translator)
    for language in start.translate:
        if language not in known:
            raise BadStart("translate", f"a list of {', '.join(known) or 'nothing: no translation here'}", language)
    is_english = start.task == "translate" or not model.is_multilingual
    wanted = dict.fromkeys(each for each in start.translate if not (is_english and each == ENGLISH))
    by_engine = tuple(each for each in wanted if each == ENGLISH and _can_translate(model))
    return Targets(
        by_engine=by_engine,
        by_service=tuple(each for each in wanted if each not in by_engine),
        source=ENGLISH if is_english else None,
    )


@dataclass(eq=False, slots=True, kw_only=True)
class _Piece:
    """The translation of one piece of final text to one language."""

    language: str
    utterance: int
    start_s: float
    end_s: float
    is_earlier: bool = False
    """Whether the utterance is one of the session that this one goes on with."""
    text: str = ""
    """The translation; empty until it is known, and where there is none."""
    failure: str = ""
    """Why there is no translation."""

    @property
    def is_settled(self) -> bool:
        """Whether it is known what becomes of it."""
        return bool(self.text or self.failure)


@dataclass(slots=True)
class _Awaited:
    """A window whose text was sent, and whose translation the engine has not finished."""

    piece: _Piece
    window: EndedWindow
    parts: EngineTranslation


@dataclass(slots=True)
class _Order:
    """The translations to one language, in the order of their texts."""

    pieces: deque[_Piece] = field(default_factory=deque)
    last: tuple[bool, int] | None = None
    """The utterance of the last translation that was sent, and whether it is an earlier one."""


class Translations:
    """The translations of one channel."""

    def __init__(
        self, channel: int, port: SessionPort, targets: Targets, hallucination_filter: HallucinationFilter
    ) -> None:
        self.channel = channel
        self.targets = targets
        self._port = port
        self._filter = hallucination_filter
        self._orders = {language: _Order() for language in (*targets.by_engine, *targets.by_service)}
        self._expected: dict[int, tuple[EngineTranslation, int]] = {}
        """What the engine still translates after its text, by the requests' ids, with the position of its audio."""
        self._awaited: list[_Awaited] = []
        self._requested: dict[int, _Piece] = {}
        """The pieces that a service translates, or the engine without a text, by the ids of the requests."""

    @property
    def is_open(self) -> bool:
        """Whether a translation of text that was sent is under way."""
        return any(order.pieces for order in self._orders.values())

    def translated_until_s(self, final_until_s: float) -> float:
        """The time before which no more translations come, where no more text comes before `final_until_s`."""
        starts_s = [piece.start_s for order in self._orders.values() for piece in order.pieces]
        return min(starts_s, default=final_until_s) if not starts_s else min(final_until_s, *starts_s)

    # New text.

    def add(self, window: EndedWindow) -> None:
        """Translate the text of a window, all of which was sent. `advance` sends what is known of it already."""
        source = self.targets.source or window.sent.language
        text = window.sent.text.strip()
        if not text:
            return
        start_s, end_s = (self._port.seconds(at) for at in (window.sent.times[0][0], window.sent.times[-1][1]))
        for language in self._orders:
            if language == source:
                continue
            piece = _Piece(language=language, utterance=window.utterance.number, start_s=start_s, end_s=end_s)
            if self._append(piece):
                if language in self.targets.by_engine:
                    parts = window.decoding.translation if window.decoding else EngineTranslation()
                    self._awaited.append(_Awaited(piece, window, parts))
                else:
                    self._ask_service(piece, text, source)

    def _append(self, piece: _Piece) -> bool:
        """Put a piece in its order. Returns whether there is room to translate it."""
        pieces = self._orders[piece.language].pieces
        if len(pieces) >= MAX_OPEN:
            piece.failure = f"{MAX_OPEN} translations are under way"
        pieces.append(piece)
        return not piece.failure

    def _ask_service(self, piece: _Piece, text: str, source: str | None) -> None:
        id = self._port.translate(self.channel, piece.language, source, text, self._translated)
        self._requested[id] = piece

    def add_earlier(self, earlier: commands.Untranslated) -> list[int]:
        """Translate text of the session that this one goes on with.

        Returns:
            The ids of the pieces that the engine translates, by `translate_audio`.
        """
        ids = []
        for language in earlier.targets:
            piece = _Piece(
                language=language,
                utterance=earlier.utterance,
                start_s=earlier.start_s,
                end_s=earlier.end_s,
                is_earlier=True,
            )
            if not self._append(piece):
                continue
            if language in self.targets.by_engine:
                ids.append(next(self._port.request_ids))
                self._requested[ids[-1]] = piece
            else:
                self._ask_service(piece, earlier.text.strip(), self.targets.source or earlier.language)
        return ids

    def translate_audio(self, id: int, samples: Samples | None, language: str | None) -> None:
        """Have the engine translate audio of earlier text; `None` where there is no audio of it any more."""
        piece = self._requested.pop(id)
        if samples is None or not len(samples):
            piece.failure = "the audio of earlier text was not sent again"
            self.advance()
            return
        options = api.DecodeOptions(task="translate", language=language)
        request = self._port.submit(self, RequestKind.TRANSLATION, samples, options, piece.utterance)
        self._requested[request.id] = piece

    # What the engine answers.

    def expect(self, request: DecodeRequest, parts: EngineTranslation, origin: int) -> None:
        """Expect the translation of a text that was decoded from the audio from the position `origin` on."""
        self._expected[request.id] = (parts, origin)
        parts.n_open += 1

    def forget(self, request: DecodeRequest) -> bool:
        """Withdraw a translation that is not needed. Returns whether the engine was making one for this request."""
        if request.id not in self._expected:
            return False
        parts, _ = self._expected.pop(request.id)
        parts.n_open -= 1
        self._port.cancel(request)
        return True

    def on_engine_event(self, request: DecodeRequest, event: api.EngineEvent) -> None:
        """Process the translation of a text, or an event of earlier text that is translated again."""
        match event:
            case api.TranslatedEvent(done):
                self._receive(request, done)
            case api.DoneEvent():
                self._receive(request, event)
            case api.SupersededEvent():
                self._receive(request, None)
            case _:
                pass

    def on_dropped(self, request: DecodeRequest) -> None:
        """Go on without a translation."""
        self._receive(request, None)

    def _receive(self, request: DecodeRequest, done: api.DoneEvent | None) -> None:
        if (piece := self._requested.pop(request.id, None)) is not None:
            segments = self._spoken(done) if done else []
            self._settle(piece, "".join(segment.text for segment in segments), is_busy=done is None)
        elif request.id in self._expected:
            parts, origin = self._expected.pop(request.id)
            parts.n_open -= 1
            parts.is_dropped |= done is None
            if done:
                parts.done.append((origin, done))
        self.advance()

    def _spoken(self, done: api.DoneEvent) -> list[api.Segment]:
        if self._filter.is_repetitive(done.compression_ratio):
            return []
        return [
            segment
            for segment in done.segments
            if self._filter.is_speech(segment.text, segment.no_speech_prob, segment.text_logprob)
        ]

    def _text(self, awaited: _Awaited) -> str:
        """The translation of a window: its own, and that of missed speech where its own has none."""
        timed: list[tuple[int, int, str]] = []
        for origin, done in sorted(awaited.parts.done, key=lambda part: part[0] != awaited.window.start):
            own = [
                (origin + round(each.start_s * SAMPLE_RATE), origin + round(each.end_s * SAMPLE_RATE), each.text)
                for each in self._spoken(done)
            ]
            timed += [each for each in own if _overlap(each, timed) <= MAX_OVERLAP]
        return "".join(text for _, _, text in sorted(timed, key=lambda each: each[0]))

    def _settle(self, piece: _Piece, text: str, *, is_busy: bool) -> None:
        piece.text = text.strip()
        if not piece.text:
            piece.failure = "the engine was too busy" if is_busy else "the engine found nothing to translate"

    # What a service answers.

    def _translated(self, id: int, text: str, failure: str) -> None:
        """Process the answer to a `Translate`; see `Session.translated`."""
        piece = self._requested.pop(id)
        piece.text = text.strip()
        piece.failure = failure or ("" if piece.text else "the translation is empty")
        self.advance()

    # Send in order.

    def advance(self) -> None:
        """Send what is known, of each language in the order of its texts."""
        for awaited in [each for each in self._awaited if not each.parts.n_open]:
            self._awaited.remove(awaited)
            self._settle(awaited.piece, self._text(awaited), is_busy=awaited.parts.is_dropped)
        for order in self._orders.values():
            while order.pieces and order.pieces[0].is_settled:
                self._send(order, order.pieces.popleft())

    def _send(self, order: _Order, piece: _Piece) -> None:
        if not piece.text:
            self._port.note_trouble(piece.language, piece.failure)
            return
        self._port.end_trouble(piece.language)
        utterance = piece.is_earlier, piece.utterance
        goes_on = order.last == utterance and piece.language not in WITHOUT_SPACES
        order.last = utterance
        self._port.send(
            events.Translation(
                utterance=piece.utterance,
                channel=self.channel,
                language=piece.language,
                start_s=piece.start_s,
                end_s=piece.end_s,
                text=f" {piece.text}" if goes_on else piece.text,
                translated_until_s=self._port.translated_until(),
                is_earlier=piece.is_earlier,
            )
        )


def _overlap(segment: tuple[int, int, str], others: list[tuple[int, int, str]]) -> float:
    """Which part of a segment's time others cover."""
    start, end, _ = segment
    covered = sum(max(0, min(end, until) - max(start, since)) for since, until, _ in others)
    return covered / max(end - start, 1)
