"""A session run by hand, and what must hold of its events."""

from collections import deque
from collections.abc import Container

from app.media.pcm import AudioFormat, Samples
from app.session import commands, events
from app.session.effects import Cancel, Close, Effect, Send, Submit
from app.session.session import Session, SessionConfig
from engine import api
from engine.api import SAMPLE_RATE, WINDOW_SAMPLES
from tests.fakes import MODEL, LevelDetector, decode, pcm

CONFIG = SessionConfig(make_detector=LevelDetector)
START = commands.Start(audio=AudioFormat("pcm_f32le"))


class Bench:
    """Runs a session by hand: collects its events, and answers its windows when told to."""

    def __init__(self, start: commands.Start = START, config: SessionConfig = CONFIG) -> None:
        self.session = Session("s_test", MODEL, config)
        self.events: list[events.Event] = []
        self.waiting: deque[tuple[int, api.Window]] = deque()
        self.windows: list[api.Window] = []
        self.closes: list[Close] = []
        self.give(start)

    def give(self, command: commands.Command) -> None:
        self.perform(self.session.receive(command))

    def hear(self, samples: Samples, *, answer: bool = True, n_channels: int = 1) -> None:
        """Audio in pieces of 100 ms, each answered by the engine before the next; channels are interleaved."""
        size = SAMPLE_RATE // 10 * n_channels
        for at in range(0, len(samples), size):
            self.give(commands.Audio(pcm(samples[at : at + size])))
            if answer:
                self.answer_all()

    def perform(self, effects: list[Effect]) -> None:
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
                        self.perform(self.session.engine_event(each, api.SupersededEvent()))
                case Cancel(job):
                    self.waiting = deque(each for each in self.waiting if each[0] != job)
                case Close():
                    self.closes.append(effect)

    def replaces(self, window: api.Window, job: int, older: api.Window) -> bool:
        """Whether the engine puts a new window in the place of this one that waits."""
        priorities = {window.priority, older.priority}
        return priorities == {api.Priority.INTERIM} and window.channel == older.channel

    def answer_one(self, index: int = 0, lost: Container[int] = ()) -> None:
        """Let the engine answer the window at this place in the queue, and pass over some of its words."""
        self.waiting.rotate(-index)
        job, window = self.waiting.popleft()
        self.waiting.rotate(index)
        for event in decode(window, lost):
            self.perform(self.session.engine_event(job, event))

    def answer_with(
        self,
        *segments: api.Segment,
        compression_ratio: float = 1.0,
        is_repetitive: bool = False,
        no_speech_prob: float = 0.0,
    ) -> None:
        """Let the engine answer the oldest window with these segments."""
        job, _ = self.waiting.popleft()
        for segment in segments:
            self.perform(self.session.engine_event(job, api.SegmentEvent(segment, "en")))
        text = "".join(segment.text for segment in segments)
        done = api.DoneEvent(
            text=text,
            pieces=(),
            segments=segments,
            language="en",
            no_speech_prob=no_speech_prob,
            avg_logprob=-0.5,
            compression_ratio=compression_ratio,
            is_truncated=False,
            n_steps=1,
            is_repetitive=is_repetitive,
        )
        self.perform(self.session.engine_event(job, done))

    def answer_all(self) -> None:
        while self.waiting:
            self.answer_one()

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    def text(self, channel: int = 0) -> str:
        return " ".join(e.text for e in self.of(events.Utterance) if e.channel == channel and e.text)

    def stop(self) -> None:
        self.give(commands.Stop())
        self.answer_all()


def check_promises(bench: Bench) -> None:
    """What must hold of the events of any session that has ended."""
    shown: dict[int, str] = {}
    ended: dict[int, str] = {}
    endpoints: dict[int, events.Endpoint] = {}
    final_until = 0.0
    last_end: dict[int, float] = {}
    texts: dict[int, str] = {}
    for event in bench.events:
        match event:
            case events.SpeechStarted(utterance=number):
                assert number not in shown
                shown[number] = texts[number] = ""
            case events.Endpoint(utterance=number):
                assert number in shown and number not in endpoints
                endpoints[number] = event
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
                assert not (endpoints[number].is_discarded and event.is_complete)
                assert event.text.startswith(shown[number]), "the final does not begin with the stable text"
                assert event.final_until_s >= final_until
                final_until = event.final_until_s
                ended[number] = event.text
    assert ended.keys() == shown.keys(), "an utterance that was announced did not end"
