"""A session that a test runs by hand, and what must hold of the events of every session."""

from collections import deque
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.fakes import MODEL, LevelDetector, decode, done, pcm
from tutti_server.app.media.pcm import AudioFormat, Samples
from tutti_server.app.session.channel import Channel
from tutti_server.app.session.core.effects import Cancel, Close, Effect, ScoreTurn, Send, Submit, Translate
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.core.port import DecodeRequest
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.session import Session
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE, WINDOW_SAMPLES

EventT = TypeVar("EventT", bound=events.Event)

CONFIG = SessionConfig(make_detector=LevelDetector)
START = commands.Start(audio=AudioFormat("pcm_f32le"))


class Bench:
    """Runs a session by hand: collects its events, and answers its windows when the test asks for it."""

    def __init__(
        self, start: commands.Start = START, config: SessionConfig = CONFIG, model: api.ModelInfo = MODEL
    ) -> None:
        self.session = Session("s_test", model, config)
        self.events: list[events.Event] = []
        self.waiting: deque[tuple[int, api.Window]] = deque()
        self.windows: list[api.Window] = []
        self.closes: list[Close] = []
        self.pauses: list[ScoreTurn] = []
        self.timing: api.WindowTiming | None = None
        """How long the engine says that it took for each window."""
        self.texts: list[Translate] = []
        """What the session has asked a service to translate."""
        self.give(start)

    def give(self, command: commands.Command, *, answer: bool = False) -> None:
        """Give the session a command, and perform what follows; the engine may answer all its windows then."""
        self.perform(self.session.receive(command))
        if answer:
            self.answer_all()

    def tell(self, job: int, *answers: api.EngineEvent) -> None:
        """Give the session events of the engine about one window."""
        for answer in answers:
            self.perform(self.session.engine_event(job, answer))

    def feed(self, samples: Samples, *, answer: bool = True, n_channels: int = 1) -> None:
        """Give the session audio in pieces of 100 ms; the engine answers each piece before the next.

        Channels are interleaved.
        """
        size = SAMPLE_RATE // 10 * n_channels
        for at in range(0, len(samples), size):
            self.give(commands.Audio(pcm(samples[at : at + size])))
            if answer:
                self.answer_all()

    def perform(self, effects: list[Effect]) -> None:
        """Perform effects as the shell does, but queue the windows."""
        for effect in effects:
            match effect:
                case Send(event):
                    self.events.append(event)
                case Submit(job, window):
                    assert 0 < len(window.samples) <= WINDOW_SAMPLES
                    older = [each for each, other in self.waiting if self.replaces(window, each, other)]
                    self.waiting = deque(each for each in self.waiting if each[0] not in older)
                    self.waiting.append((job, window))
                    self.windows.append(window)
                    for each in older:
                        self.tell(each, api.SupersededEvent())
                case Cancel(job):
                    self.waiting = deque(each for each in self.waiting if each[0] != job)
                case ScoreTurn():
                    self.pauses.append(effect)
                case Translate():
                    self.texts.append(effect)
                case Close():
                    self.closes.append(effect)

    def replaces(self, window: api.Window, job: int, older: api.Window) -> bool:
        """Whether the engine replaces a window that waits by a new one."""
        is_like = window.priority is older.priority and window.channel == older.channel
        return is_like and window.priority.may_be_dropped

    def answer_one(self, index: int = 0, lost: Container[int] = ()) -> None:
        """Let the engine answer the window at this index of the queue, without the `lost` words."""
        self.waiting.rotate(-index)
        job, window = self.waiting.popleft()
        self.waiting.rotate(index)
        for event in decode(window, lost):
            timed = replace(event, timing=self.timing) if isinstance(event, api.DoneEvent) else event
            self.tell(job, timed)

    def answer_with(
        self,
        *segments: api.Segment,
        compression_ratio: float = 1.0,
        is_repetitive: bool = False,
        is_truncated: bool = False,
        no_speech_prob: float = 0.0,
        text_end_s: float | None = None,
    ) -> None:
        """Let the engine answer the oldest window with these segments."""
        job, window = self.waiting.popleft()
        language = window.options.language or "en"
        for segment in segments:
            self.tell(job, api.SegmentEvent(segment, language))
        text = "".join(segment.text for segment in segments)
        answer = replace(
            done(text, *segments, language=language, no_speech_prob=no_speech_prob),
            compression_ratio=compression_ratio,
            is_repetitive=is_repetitive,
            is_truncated=is_truncated,
            text_end_s=text_end_s,
        )
        self.tell(job, answer)

    def score(self, probability: float, index: int = -1) -> None:
        """Let the turn model score the pause at this index, by default the last one."""
        pause = self.pauses[index]
        self.perform(self.session.turn_scored(pause.channel, pause.audio_end, probability))

    def answer_all(self) -> None:
        """Let the engine answer all windows, also those that follow from its answers."""
        while self.waiting:
            self.answer_one()

    def of(self, kind: type[EventT]) -> list[EventT]:
        """The events of this type, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def failure(self) -> events.Failure:
        """The last event, which must be a failure."""
        assert isinstance(self.events[-1], events.Failure)
        return self.events[-1]

    @property
    def channels(self) -> Sequence[Channel]:
        """The channels of the session, to look at what they hold."""
        assert self.session._intake
        return self.session._intake.channels

    @property
    def jobs(self) -> dict[int, DecodeRequest]:
        """What the session waits for from the engine."""
        return self.session._port.requests

    def text(self, channel: int = 0) -> str:
        """The final text of a channel."""
        return " ".join(e.text for e in self.of(events.Utterance) if e.channel == channel and e.text)

    def stop(self) -> None:
        """Stop the session, and answer all its windows."""
        self.give(commands.Stop(), answer=True)


def check_promises(bench: Bench) -> None:
    """Check what must hold of the events of every session that has ended."""
    shown: dict[int, str] = {}
    ended: dict[int, str] = {}
    endpoints: dict[int, events.Endpoint] = {}
    final_until = 0.0
    last_end: dict[int, float] = {}
    texts: dict[int, str] = {}
    eager: dict[int, str] = {}
    for event in bench.events:
        match event:
            case events.SpeechStarted(utterance=number):
                assert number not in shown
                shown[number] = texts[number] = ""
            case events.Endpoint(utterance=number):
                assert number in shown and number not in endpoints
                endpoints[number] = event
            case events.EagerEnd(utterance=number):
                assert number in shown and number not in endpoints and number not in eager
                eager[number] = event.text
            case events.SpeechResumed(utterance=number):
                assert number not in ended
                assert eager.pop(number, None) is not None, "there was no eager end"
            case events.Interim(utterance=number):
                assert number not in ended and number not in endpoints
                stable = texts[number] + event.stable
                assert stable.startswith(shown[number]), "stable text was taken back"
                shown[number] = stable
                assert event.start_s <= event.end_s
            case events.Segment(utterance=number):
                assert number not in ended
                texts[number] += event.text
                assert last_end.get(event.channel, 0.0) <= event.start_s <= event.end_s, "finals overlap"
                last_end[event.channel] = event.end_s
            case events.Utterance(utterance=number):
                assert number not in ended
                assert event.end_s <= endpoints[number].end_s
                assert event.text == texts[number]
                assert eager.pop(number, event.text.strip()) == event.text.strip(), "the eager end had another text"
                assert not (endpoints[number].is_discarded and event.is_complete)
                assert event.text.startswith(shown[number]), "the final does not begin with the stable text"
                assert event.final_until_s >= final_until
                final_until = event.final_until_s
                ended[number] = event.text
    assert ended.keys() == shown.keys(), "an utterance that was announced did not end"
    _check_words(bench)


def _check_words(bench: Bench) -> None:
    """Check that stable words are those of the stable text, that they only grow, and that finals keep their times."""
    final: dict[int, list[events.Word]] = {}
    shown: dict[int, list[events.Word]] = {}
    for event in bench.events:
        match event:
            case events.Interim(utterance=number):
                if event.stable_words:
                    assert _letters(event.stable_words) == "".join(event.stable.split())
                    stable = [*final.get(number, ()), *event.stable_words]
                    _check_begins_with(stable, shown.get(number, []))
                    shown[number] = stable
                assert "".join(event.tail.split()).endswith(_letters(event.tail_words))
                _check_times([*event.stable_words, *event.tail_words])
            case events.Segment(utterance=number):
                assert not event.words or _letters(event.words) == "".join(event.text.split())
                final.setdefault(number, []).extend(event.words)
                _check_times(event.words)
                for word in event.words:
                    assert event.start_s <= word.start_s and word.end_s <= event.end_s
            case events.Utterance(utterance=number):
                _check_begins_with(final.get(number, []), shown.get(number, []))


def _letters(words: Sequence[events.Word]) -> str:
    return "".join("".join(word.text.split()) for word in words)


def _check_times(words: Sequence[events.Word]) -> None:
    times = [time for word in words for time in (word.start_s, word.end_s)]
    assert times == sorted(times), "the times of words go back"


def _check_begins_with(words: Sequence[events.Word], before: Sequence[events.Word]) -> None:
    """Check that the words begin with those before them, of which only the text of the last may have grown."""
    assert len(words) >= len(before), "words were taken back"
    for word, old in zip(words, before, strict=False):
        assert (word.start_s, word.end_s, word.confidence) == (old.start_s, old.end_s, old.confidence)
        assert word.text == old.text or (old is before[-1] and word.text.startswith(old.text))
