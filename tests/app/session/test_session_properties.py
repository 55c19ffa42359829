"""The session's promises when the engine is late, wrong, repetitive, silent, overloaded or dead."""

import hashlib
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.bench import CONFIG, START, Bench, check_promises
from tests.fakes import TIMESTAMP_BEGIN, as_events, pcm, silence, speech, timestamp
from tutti_server.app.errors import LimitExceeded
from tutti_server.app.media.pcm import AudioFormat, Encoding, Samples
from tutti_server.app.session.core.effects import Effect
from tutti_server.app.session.core.port import RequestKind
from tutti_server.app.session.engine_driver import MAX_BACKLOG
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.messages.commands import MAX_PENDING_FLUSHES
from tutti_server.app.session.speech.coverage import MIN_UNCOVERED_SAMPLES, Span, uncovered
from tutti_server.app.session.speech.endpointing import FRAME_SAMPLES, ONSET_VOICED, WebRtcDetector
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE, WINDOW_SAMPLES
from tutti_server.engine.errors import EngineFailed, EngineOverloaded

MAX_JOBS = 2 * CONFIG.max_finals_in_flight + 3
"""The most jobs of a channel.

These are the finals in flight, a re-decode of each, a speculative final, and an interim that replaces another.
"""
MAX_SAMPLES_HELD = WINDOW_SAMPLES + SAMPLE_RATE
"""The most samples that a channel holds: an open window, and less than a second of resampled and incomplete audio."""
MAX_UNREPORTED = 2 * MIN_UNCOVERED_SAMPLES
"""The longest speech that may be without text and not reported: a stretch, and its neighbour after a cut."""
COMMA = 80
STEP_S = 0.02
LAST_STEP = 1500
MODES: list[commands.EndpointingMode] = ["vad", "adaptive", "manual"]
MOODS = ["random", "agrees", "agrees", "empty", "loop", "doubted", "silent", "overload", "stall"]


def answer_wildly(window: api.Window, mood: str, numbers: list[int]) -> list[api.EngineEvent]:
    """A random answer within the engine's contract: the forced prefix comes first, and times never decrease.

    Args:
        window: what the engine was asked for.
        mood: one of `MOODS`.
        numbers: below 80 a word, below 85 the comma of the word before; others advance the time, perhaps beyond the end
            of the audio.
    """
    tokens = list(window.options.prefix)
    if mood == "agrees":
        tokens += window.options.draft
    at_step = max((token - TIMESTAMP_BEGIN for token in tokens if token >= TIMESTAMP_BEGIN), default=0)
    for number in numbers if mood != "empty" else []:
        if number < 85:
            tokens.append(min(number, 80))
        elif tokens:
            at_step = min(at_step + (number - 84) * 10, LAST_STEP)
            tokens.append(TIMESTAMP_BEGIN + at_step)
    if tokens and tokens[-1] < TIMESTAMP_BEGIN:
        tokens.append(TIMESTAMP_BEGIN + min(at_step + 5, LAST_STEP))
    pieces: list[api.Piece] = []
    for token in tokens:
        if token >= TIMESTAMP_BEGIN:
            pieces.append(api.Piece((token,), "", (token - TIMESTAMP_BEGIN) * STEP_S))
        elif token == COMMA and pieces and pieces[-1].at_s is None:
            before = pieces.pop()
            pieces.append(api.Piece((*before.tokens, token), before.text + ","))
        else:
            pieces.append(api.Piece((token,), f" x{token}" if token % 7 and token != COMMA else " ..."))
    doubts = {"doubted": (0.0, -2.0, 1.0), "silent": (0.95, -2.0, 1.0), "loop": (0.0, -0.3, 9.0)}
    no_speech_prob, avg_logprob, ratio = doubts.get(mood, (0.0, -0.1, 1.0))
    sent: list[api.EngineEvent] = [api.StartedEvent(0.0, 1)]
    for event in with_wild_times(as_events(pieces, window.options.word_times), window, numbers):
        match event:
            case api.SegmentEvent(segment):
                segment = replace(segment, no_speech_prob=no_speech_prob, avg_logprob=avg_logprob)
                sent.append(replace(event, segment=segment))
            case api.DoneEvent():
                segments = tuple(
                    replace(each, no_speech_prob=no_speech_prob, avg_logprob=avg_logprob) for each in event.segments
                )
                done = replace(
                    event,
                    segments=segments,
                    no_speech_prob=no_speech_prob,
                    avg_logprob=avg_logprob,
                    compression_ratio=ratio,
                )
                sent.append(done)
    return sent


def with_wild_times(answer: list[api.EngineEvent], window: api.Window, numbers: list[int]) -> Iterator[api.EngineEvent]:
    """The same events, with words at other times in each answer, also outside their segments."""
    done = answer[-1]
    assert isinstance(done, api.DoneEvent)
    chance = random.Random(repr(numbers))
    words = [word for segment in done.segments for word in segment.words or ()]
    audio_s = len(window.samples) / SAMPLE_RATE
    times = iter(sorted(round(chance.uniform(0.0, audio_s), 2) for _ in range(2 * len(words))))
    segments = tuple(
        replace(
            segment,
            words=segment.words
            and tuple(api.Word(word.text, next(times), next(times), chance.random()) for word in segment.words),
        )
        for segment in done.segments
    )
    for segment in segments:
        yield api.SegmentEvent(segment, "en")
    yield replace(done, segments=segments)


class WildBench(Bench):
    """A session whose engine answers at random, driven by a seed."""

    def __init__(self, start: commands.Start, chance: random.Random) -> None:
        self._chance = chance
        self._under_way: dict[int, deque[api.EngineEvent]] = {}
        self.n_flushed = 0
        super().__init__(start, replace(CONFIG, speculates=chance.random() < 0.7))

    def step_engine(self) -> None:
        """Send a few events of one window, or refuse it."""
        job, window = self._chance.choice(self.waiting)
        if job not in self._under_way:
            mood = self._chance.choice(MOODS)
            if mood in ("overload", "stall") and (window.priority.may_be_dropped or self._is_redecode(window)):
                self._forget(job)
                if mood == "stall":
                    self.perform(self.session.engine_stalled(job, 30.0))
                else:
                    self.perform(self.session.engine_error(job, EngineOverloaded(5, 5)))
                return
            numbers = [self._chance.randrange(100) for _ in range(self._chance.randrange(9))]
            self._under_way[job] = deque(answer_wildly(window, mood, numbers))
        rest = self._under_way[job]
        for _ in range(self._chance.randint(1, len(rest))):
            event = rest.popleft()
            if not rest:
                self._forget(job)
            self.tell(job, event)
            if job not in self._under_way and rest:
                return

    def flush(self) -> None:
        self.give(commands.Flush(self.n_flushed))
        self.n_flushed += 1

    def fail_engine(self) -> None:
        job, _ = self._chance.choice(self.waiting)
        self._forget(job)
        self.perform(self.session.engine_error(job, EngineFailed("gone")))

    def work_off(self) -> None:
        while self.waiting:
            self.step_engine()

    def replaces(self, window: api.Window, job: int, older: api.Window) -> bool:
        """Not always: the engine may have begun a window before its replacement came."""
        can_replace = super().replaces(window, job, older)
        return can_replace and job not in self._under_way and self._chance.random() < 0.8

    def perform(self, effects: list[Effect]) -> None:
        super().perform(effects)
        waiting = {job for job, _ in self.waiting}
        self._under_way = {job: rest for job, rest in self._under_way.items() if job in waiting}

    def check_bounds(self) -> None:
        """Check what a session may hold, as long as the shell respects its backlog."""
        n_channels = len(self.channels)
        assert len(self.jobs) <= MAX_JOBS * n_channels
        assert len(self.waiting) <= MAX_JOBS * n_channels
        assert len(self.session._port.flushes) <= MAX_PENDING_FLUSHES
        for channel in self.channels:
            assert len(channel.finals) <= 2 * channel.finals.n_to_decode
            assert channel._buffer.end - channel._buffer.start <= MAX_SAMPLES_HELD
            assert len(channel._buffer._samples) <= 4 * MAX_SAMPLES_HELD

    def _is_redecode(self, window: api.Window) -> bool:
        return any(self.jobs[job].kind is RequestKind.REDECODE for job, each in self.waiting if each is window)

    def _forget(self, job: int) -> None:
        self.waiting = deque(each for each in self.waiting if each[0] != job)
        self._under_way.pop(job, None)


def sound(chance: random.Random) -> Samples:
    """Speech, silence, or a click too short to be speech."""
    match chance.randrange(6):
        case 0:
            return silence(chance.choice([0.1, 0.4, 0.7, 1.5]))
        case 1:
            return np.concatenate((np.full(chance.randrange(1, 1900), 0.3, dtype=np.float32), silence(0.05)))
        case 2:
            return speech(chance.choices(range(81), k=chance.randrange(20, 60)), chance.choice([0, 1280]))
        case _:
            return speech(chance.choices(range(81), k=chance.randrange(1, 9)))


def reconfigured(start: commands.Start, chance: random.Random) -> commands.Configure:
    """Other endpointing, language and words, with the same audio."""
    mode = chance.choice(MODES)
    silence_ms, padding_ms = chance.choice([100, 500]), chance.choice([0, 900])
    endpointing = commands.Endpointing(
        mode=mode,
        silence_ms=silence_ms,
        max_utterance_s=10,
        padding_ms=padding_ms,
        eager_confidence=chance.choice([None, 0.1]),
    )
    language = chance.choice([None, "de"])
    return commands.Configure(
        audio=start.audio,
        language=language,
        endpointing=endpointing,
        prompt="Before.",
        hotwords=(),
        words=(words := chance.choice([True, False])),
        interim_words=words and chance.choice([True, False]),
    )


def spoken(samples: Samples) -> list[Span]:
    """What any detector must take for speech: sound that is too long for a click, joined over short gaps."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], (samples > 0).astype(int), [0]))))
    spans: list[Span] = []
    for start, end in zip(edges[:-1:2], edges[1::2], strict=True):
        if spans and start - spans[-1][1] < 1600:
            spans[-1] = (spans[-1][0], int(end))
        else:
            spans.append((int(start), int(end)))
    return [(start, end) for start, end in spans if end - start >= 2 * ONSET_VOICED * FRAME_SAMPLES]


def check_coverage(bench: Bench, channel: int, samples: Samples) -> None:
    """Check that speech has text, or is reported."""
    named = [
        *((event.start_s, event.end_s) for event in bench.of(events.Segment) if event.channel == channel),
        *(span for event in bench.of(events.Utterance) if event.channel == channel for span in event.uncovered),
    ]
    covered = sorted((round(start * SAMPLE_RATE), round(end * SAMPLE_RATE)) for start, end in named)
    assert uncovered(spoken(samples), covered, min_samples=MAX_UNREPORTED) == []


def check_flushes(bench: WildBench, *, all_of_them: bool) -> None:
    """Check that each flush is answered once, in order; after a failure the last ones may have no answer."""
    answered = [event.id for event in bench.of(events.Flushed)]
    refused = [event for event in bench.of(events.Failure) if event.code == "too_many_flushes"]
    assert answered == list(range(len(answered)))
    if all_of_them:
        assert len(answered) + len(refused) == bench.n_flushed


def check_order(bench: Bench) -> None:
    """Check that the utterances of a channel are announced and end in order, and do not overlap."""
    begun: dict[int, events.SpeechStarted] = {}
    ended: dict[int, events.Utterance] = {}
    for event in bench.events:
        match event:
            case events.SpeechStarted(channel=channel):
                before = begun.get(channel)
                assert before is None or (before.utterance < event.utterance and before.at_s <= event.at_s)
                begun[channel] = event
            case events.Utterance(channel=channel):
                last = ended.get(channel)
                assert last is None or (last.utterance < event.utterance and last.end_s <= event.start_s + 0.001)
                assert event.start_s <= event.end_s
                ended[channel] = event


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A session, and what its client does with it."""

    seed: int
    """Of the sounds, the moments and the moods of the engine."""
    n_sounds: int
    n_channels: int
    endpointing: commands.Endpointing
    words: bool
    interim_words: bool
    discards: bool
    reconfigures: bool
    ending: str

    @property
    def start(self) -> commands.Start:
        audio = AudioFormat("pcm_f32le", channels=self.n_channels)
        return replace(
            START,
            audio=audio,
            endpointing=self.endpointing,
            words=self.words,
            interim_words=self.words and self.interim_words,
        )


SCENARIOS = st.builds(
    Scenario,
    seed=st.integers(0, 1 << 32),
    n_sounds=st.integers(1, 12),
    n_channels=st.sampled_from([1, 1, 2]),
    endpointing=st.builds(
        commands.Endpointing,
        mode=st.sampled_from(["vad", "adaptive", "manual"]),
        eager_confidence=st.sampled_from([None, 0.1, 0.8]),
        silence_ms=st.sampled_from([100, 300, 500]),
        min_utterance_s=st.sampled_from([0.0, 0.0, 1.5]),
        max_utterance_s=st.just(10),
    ),
    words=st.booleans(),
    interim_words=st.booleans(),
    discards=st.booleans(),
    reconfigures=st.booleans(),
    ending=st.sampled_from(["stop", "drain", "limit", "stop then drain", "engine failed", "session failed"]),
)


@given(scenario=SCENARIOS)
def test_promises_hold_whatever_the_engine_does(scenario: Scenario) -> None:
    """Text is append-only, no speech is lost, utterances and flushes end once, and memory is bounded at all times."""
    chance = random.Random(scenario.seed)
    bench = WildBench(scenario.start, chance)
    played = play_sounds(bench, scenario, chance)
    end_session(bench, scenario.ending)
    bench.work_off()
    check_promises(bench)
    check_order(bench)
    check_flushes(bench, all_of_them=not scenario.ending.endswith("failed"))
    assert len(bench.closes) == 1 and not bench.jobs
    if scenario.ending == "stop":
        assert isinstance(bench.events[-1], events.Stopped)
    # A flush may leave too little of a word to be detected, and discarded speech has no text.
    if not (bench.n_flushed or scenario.discards or scenario.reconfigures):
        for channel, samples in enumerate(played):
            check_coverage(bench, channel, samples)


def play_sounds(bench: WildBench, scenario: Scenario, chance: random.Random) -> list[Samples]:
    """Feed random sounds, with random commands between them; returns the audio of each channel."""
    n_channels = scenario.n_channels
    played: list[list[Samples]] = [[] for _ in range(n_channels)]
    for _ in range(scenario.n_sounds):
        sounds = [sound(chance) for _ in range(n_channels)]
        n_samples = max(map(len, sounds))
        sounds = [np.pad(each, (0, n_samples - len(each))) for each in sounds]
        for channel, each in enumerate(sounds):
            played[channel].append(each)
        audio = np.stack(sounds, axis=1).reshape(-1)
        for at in range(0, len(audio), 3200 * n_channels):
            while bench.session.backlog >= MAX_BACKLOG:
                bench.step_engine()
            bench.give(commands.Audio(pcm(audio[at : at + 3200 * n_channels])))
            bench.check_bounds()
            if bench.waiting and chance.random() < 0.5:
                bench.step_engine()
        if chance.random() < 0.25:
            bench.flush()
            bench.check_bounds()
        if scenario.discards and chance.random() < 0.25:
            bench.give(commands.Discard())
            bench.check_bounds()
        if scenario.reconfigures and chance.random() < 0.25:
            bench.give(reconfigured(scenario.start, chance))
            bench.check_bounds()
    return [np.concatenate(parts) for parts in played]


def end_session(bench: WildBench, ending: str) -> None:
    session = bench.session
    match ending:
        case "stop":
            bench.give(commands.Stop())
        case "stop then drain":
            bench.give(commands.Stop())
            bench.perform(session.drain())
        case "drain":
            bench.perform(session.drain())
            if not session.is_closed:
                bench.flush()
        case "limit":
            bench.perform(session.end(LimitExceeded("idle", "no message", 1008)))
        case "engine failed":
            if bench.waiting:
                bench.fail_engine()
            else:
                bench.give(commands.Stop())
        case _:
            bench.perform(session.fail(LimitExceeded("slow_reader", "not read", 1008)))


def answer_by_hash(window: api.Window) -> list[api.EngineEvent]:
    """A word for every 0.4 s, which depends on all of its samples."""
    pieces = [timestamp(0)]
    for at in range(0, len(window.samples), 6400):
        digest = hashlib.sha1(window.samples[at : at + 6400].tobytes()).hexdigest()[:6]
        pieces.append(api.Piece((int(digest, 16) % 9000,), f" {digest}"))
    return as_events([*pieces, timestamp(len(window.samples))])


@given(
    seed=st.integers(0, 9999),
    encoding=st.sampled_from(["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]),
    sample_rate=st.sampled_from([8000, 16000, 44100, 48000]),
    n_channels=st.sampled_from([1, 3]),
    cuts=st.lists(st.integers(1, 30_000), max_size=30),
)
def test_finals_are_the_same_to_the_sample(
    seed: int, encoding: Encoding, sample_rate: int, n_channels: int, cuts: list[int]
) -> None:
    """With every format and the real detector, windows have exactly the same samples however the bytes were cut."""
    noise = np.random.default_rng(seed)
    loudness = np.repeat(noise.choice([0, 0, 40, 120], size=24), sample_rate // 4)
    data = (noise.integers(-100, 100, size=(len(loudness), n_channels)) * loudness[:, None]).astype("<i2")
    audio = data.astype("<f4") / 32768 if encoding == "pcm_f32le" else data
    content = audio.astype("u1").tobytes() if encoding.endswith("law") else audio.tobytes()
    start = commands.Start(audio=AudioFormat(encoding, sample_rate, n_channels), interim=False)
    outcomes = []
    for sizes in (cuts, list[int]()):
        bench, at = Bench(start, replace(CONFIG, make_detector=WebRtcDetector)), 0
        for size in [*sizes, len(content)]:
            bench.give(commands.Audio(content[at : at + size]))
            at += size
        bench.give(commands.Stop())
        while bench.waiting:
            job, window = bench.waiting.popleft()
            bench.tell(job, *answer_by_hash(window))
        check_promises(bench)
        # The cutting decides which channel's utterance is announced first, so numbers are not compared.
        outcomes.append(
            (
                sorted((e.channel, e.at_s, e.from_s) for e in bench.of(events.SpeechStarted)),
                sorted((e.channel, e.end_s) for e in bench.of(events.Endpoint)),
                sorted((e.channel, e.start_s, e.end_s, e.text, e.uncovered) for e in bench.of(events.Utterance)),
            )
        )
        assert bench.of(events.Stopped)
    assert outcomes[0] == outcomes[1]
