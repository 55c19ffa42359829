"""A window gives the same whatever its neighbours, their options, and how slots and encoder calls fall.

The worker runs in the test's own thread. Windows join and leave at given decode steps, so that an example says all
there is to know about a run. What each window gives alone is the measure. Rounding differs with the shape of a batch:
two outcomes may part only where the run alone has two choices closer than `NEAR_TIE`; that is logged, and rare.

A few examples of each model always run; many more do with `make parity`.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.engine.checkpoints import SHAPES, make_checkpoint
from tests.engine.engines import Samples, noise, read_clip
from tests.engine.test_parity import tokens_of
from tests.small_model import SMALL_MODEL
from tutti_server.engine.api import DecodeOptions, DoneEvent, Priority, Sampling, Window
from tutti_server.engine.checkpoint.checkpoint import Checkpoint, read_checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.decoding.logit_rules import RuleState
from tutti_server.engine.decoding.sampling import Sampler
from tutti_server.engine.probe import Speed
from tutti_server.engine.runner import LaunchedStep, Runner
from tutti_server.engine.scheduling.request import Item, Request
from tutti_server.engine.scheduling.worker import Worker
from tutti_server.engine.validation import check_options

logger = logging.getLogger(__name__)

NEAR_TIE = 1e-4
"""In logits."""

N_SLOTS = (1, 2, 3, 5)
MANY_EXAMPLES = {"short": 60, "full": 10, "random": 250}
"""By model: the small one with windows as long as their audio and with full windows, and a random one."""


class StagedRunner(Runner):
    """Lets a test act before each decode step."""

    before_step: Callable[[], None]

    def launch(self) -> LaunchedStep:
        self.before_step()
        return super().launch()


class MarginRunner(StagedRunner):
    """Records how close each token of a window alone was to another one."""

    def __init__(self, checkpoint: Checkpoint, config: EngineConfig) -> None:
        super().__init__(checkpoint, config)
        self.sampler = self.states.sampler = MarginSampler(self.device)
        self.states.rules[-1] = MarginTimes(self.states.rules[-1], self.sampler, checkpoint)


class MarginSampler(Sampler):
    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.margins: list[float] = []
        """The margin of each token in logits, in all attempts."""
        self.margin_of_times = float("inf")

    def sample(self, slots: Sequence[int], logits: Tensor) -> tuple[Tensor, Tensor]:
        (slot,) = slots
        temperature, generator = self._draws.get(slot, (0.0, None))
        keys = logits[0]
        if generator is not None:
            again = generator.clone_state()
            keys = keys / temperature - torch.empty_like(keys).exponential_(generator=again).log()
        best, second = keys.topk(2).values.tolist()
        margin = (best - second) * (temperature or 1.0)
        self.margins.append(min(margin, self.margin_of_times))
        return super().sample(slots, logits)


class MarginTimes:
    """The timestamp rule; also records how close all times together are to being as likely as the likeliest text."""

    def __init__(self, rule: object, sampler: MarginSampler, checkpoint: Checkpoint) -> None:
        self._rule = rule
        self._sampler = sampler
        self._eot = checkpoint.tokenizer.eot
        self._first = checkpoint.tokenizer.first_timestamp

    def apply(self, logits: Tensor, state: RuleState) -> None:
        text = logits[0, : self._first - 1].clone()
        self._rule.apply(logits, state)  # type: ignore[attr-defined]
        if bool(state.last_is_time & ~state.second_last_is_time):
            text = text[self._eot :]
        apart = (logits[0, self._first :].logsumexp(dim=-1) - text.amax()).abs().item()
        is_choice = bool(state.with_timestamps & ~state.is_at_begin) and np.isfinite(apart)
        self._sampler.margin_of_times = apart if is_choice else float("inf")


@dataclass(frozen=True)
class Audio:
    kind: str
    """A clip, `noise` or `silence`."""
    seed: int
    """Of the noise; of a clip, the tenths of a second that it begins later."""
    tenths: int
    """Of a second, at most."""

    @property
    def samples(self) -> Samples:
        n_samples = 1_600 * self.tenths
        if self.kind == "noise":
            return noise(self.seed, n_samples)
        if self.kind == "silence":
            return np.zeros(n_samples, np.float32)
        begin = 1_600 * self.seed
        return read_clip(self.kind)[begin : begin + n_samples]


@dataclass(frozen=True)
class Ask:
    audio: Audio
    options: DecodeOptions
    priority: Priority = Priority.FINAL
    at_step: int = 0
    """Submitted after this many decode steps, or earlier if no other window is open."""
    cancel_after: int | None = None
    """Steps later, if it is not done by then."""
    n_drafted: int = 0
    """Tokens of its own output that it gets as draft tokens, followed by a wrong one."""


@dataclass(frozen=True)
class Alone:
    done: DoneEvent
    margins: list[float]


@dataclass
class Play:
    """Runs a worker until all that was asked is done or cancelled."""

    runner: StagedRunner
    asks: Sequence[Ask]
    config: EngineConfig
    done: dict[int, DoneEvent] = field(default_factory=dict)
    n_steps: int = 0

    def run(self) -> dict[int, DoneEvent]:
        self._to_come = sorted(range(len(self.asks)), key=lambda index: self.asks[index].at_step)
        self._open: dict[int, tuple[Request, int]] = {}
        self._worker = Worker(self.runner, self.config, Speed(0.01), self._deliver)
        self.runner.before_step = self._before_step
        self._go_on()
        self._worker.run()
        assert not self._to_come and not self._open
        assert self.runner.slots.n_free == self.config.n_slots
        return self.done

    def _before_step(self) -> None:
        self.n_steps += 1
        self._go_on()

    def _deliver(self, items: list[tuple[Request, Item]]) -> None:
        for request, item in items:
            request.put(item)
        self._go_on()

    def _go_on(self) -> None:
        for index, (request, since) in list(self._open.items()):
            after = self.asks[index].cancel_after
            if after is not None and self.n_steps >= since + after:
                del self._open[index]
                self._worker.cancel(request)
        while self._to_come and (not self._open or self.asks[self._to_come[0]].at_step <= self.n_steps):
            self._submit(self._to_come.pop(0))
        if not self._open:
            self._worker.queue.close()

    def _submit(self, index: int) -> None:
        ask = self.asks[index]
        window = Window(
            samples=ask.audio.samples, session=f"session {index}", priority=ask.priority, options=ask.options
        )

        def put(item: Item) -> None:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, DoneEvent):
                self.done[index] = item
                self._open.pop(index, None)

        request = Request(window=window, max_tokens=check_options(window.options, self.runner.checkpoint), put=put)
        self._open[index] = (request, self.n_steps)
        self._worker.submit(request)


class Models:
    """One model with several numbers of slots, and what windows give alone with it."""

    def __init__(self, checkpoint: Checkpoint, audio_context: str) -> None:
        self.checkpoint = checkpoint
        self._audio_context = audio_context
        self._alone = MarginRunner(checkpoint, self.config(n_slots=1))
        self.runner = cache(lambda n_slots: StagedRunner(checkpoint, self.config(n_slots=n_slots)))
        self.alone = cache(self._decode_alone)

    def config(self, **settings: object) -> EngineConfig:
        # No clock decides anything, so that the same example is the same run.
        given = {"audio_context": self._audio_context, "max_wait_ms": 0, "min_decode_share": 0} | settings
        return EngineConfig(**given)  # type: ignore[arg-type]

    def _decode_alone(self, audio: Audio, options: DecodeOptions, priority: Priority) -> Alone:
        self._alone.sampler.margins = []
        done = Play(self._alone, [Ask(audio, options, priority)], self.config(n_slots=1)).run()[0]
        return Alone(done, self._alone.sampler.margins)


@pytest.fixture(scope="module")
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    name: str = request.param
    if name == "random":
        shape = replace(SHAPES[1], max_initial_timestamp_index=20)
        folder = make_checkpoint(tmp_path_factory.mktemp("invariance"), shape, seed=11)
        yield Models(read_checkpoint(str(folder)), "auto")
    else:
        yield Models(read_checkpoint(SMALL_MODEL), "auto" if name == "short" else "full")


WORDS = st.sampled_from(["Kowalski", "meeting", "plat form", "Zürich", "東京", "trane", "thee"])
AUDIO = st.one_of(
    st.builds(Audio, st.sampled_from(["hello", "train", "call"]), st.integers(0, 25), st.integers(1, 130)),
    st.builds(Audio, st.just("noise"), st.integers(0, 50), st.integers(1, 60)),
    st.builds(Audio, st.just("silence"), st.just(0), st.integers(1, 40)),
)
SAMPLING = st.one_of(
    st.just(Sampling()),
    st.builds(
        Sampling,
        temperatures=st.sampled_from([(0.3,), (0.8,), (1.5,)]),
        best_of=st.integers(1, 3),
    ),
    st.builds(
        Sampling,
        temperatures=st.sampled_from([(0.0, 0.6), (0.0, 0.2, 0.9), (0.7, 0.0, 1.2)]),
        best_of=st.integers(1, 2),
        # The default; one that no output meets, so that all temperatures are tried; one that some outputs meet.
        logprob_threshold=st.sampled_from([-1.0, 0.0, -0.4]),
        no_speech_threshold=st.sampled_from([0.6, 1.0]),
    ),
)


def options_of(checkpoint: Checkpoint) -> st.SearchStrategy[DecodeOptions]:
    tokenizer = checkpoint.tokenizer
    first, text = tokenizer.first_timestamp, tokenizer.encode(" Hello every")
    prefixes = [(), (), tuple(text), (first, *text), (first, *text, first + 30), (first, *text, first + 30, first + 31)]
    return st.builds(
        DecodeOptions,
        language=st.sampled_from([None, "en", "en", "de"]),
        task=st.sampled_from(["transcribe", "translate"]),
        timestamps=st.booleans(),
        previous_text=st.sampled_from(["", "", "We are at the station.", "Grüße aus 東京. " * 50]),
        prefix=st.sampled_from(prefixes),
        hotwords=st.lists(WORDS, max_size=3).map(tuple),
        word_times=st.booleans(),
        latest_end_s=st.sampled_from([None, 30.0]),
        max_tokens=st.integers(len(prefixes[-1]) + 1, 40),
        sampling=SAMPLING,
    )


def asks_of(checkpoint: Checkpoint) -> st.SearchStrategy[list[Ask]]:
    ask = st.builds(
        Ask,
        AUDIO,
        options_of(checkpoint),
        st.sampled_from(Priority),
        at_step=st.sampled_from([0, 0, 1, 5, 20]),
        cancel_after=st.sampled_from([None, None, None, 0, 1, 7]),
        n_drafted=st.sampled_from([0, 0, 1, 5, 40]),
    )
    return st.lists(ask, min_size=2, max_size=6)


SETTINGS = st.fixed_dictionaries(
    {
        "n_slots": st.sampled_from(N_SLOTS),
        "max_encode_batch": st.integers(1, 4),
        "max_decode_stall_ms": st.sampled_from([0.0, 1e9]),
    }
)


def check_invariance(models: Models, asks: list[Ask], config: EngineConfig) -> None:
    given = [replace(ask, options=drafted(models, ask)) if ask.n_drafted else ask for ask in asks]
    together = Play(models.runner(config.n_slots), given, config).run()
    for index, ask in enumerate(asks):
        assert index in together or ask.cancel_after is not None
        if index in together:
            check_same(together[index], models.alone(ask.audio, ask.options, ask.priority), ask)


def drafted(models: Models, ask: Ask) -> DecodeOptions:
    """A draft changes nothing, right or wrong."""
    following = tokens_of(models.alone(ask.audio, ask.options, ask.priority).done)[len(ask.options.prefix) :]
    wrong = models.checkpoint.tokenizer.encode(" wrong")
    return replace(ask.options, draft=(*following[: ask.n_drafted], *wrong, *following[ask.n_drafted :]))


def check_same(ours: DoneEvent, alone: Alone, ask: Ask) -> None:
    theirs = alone.done
    found, wanted = tokens_of(ours), tokens_of(theirs)
    if found != wanted or (not ask.n_drafted and ours.n_steps != theirs.n_steps):
        margins = alone.margins
        if len(margins) in (len(wanted) - len(ask.options.prefix), len(wanted) - len(ask.options.prefix) + 1):
            # With one attempt, the tokens differ from where the tie is.
            same = [one == other for one, other in zip(found, wanted, strict=False)]
            n_same = same.index(False) if False in same else len(same)
            margins = margins[n_same - len(ask.options.prefix) :][:1]
        assert min(margins) < NEAR_TIE, (ask, margins, found, wanted)
        logger.info("a near tie, %.2g, in one of %d tokens: %s", min(margins), len(alone.margins), ask)
        return
    for name in ("text", "pieces", "language", "is_truncated", "is_repetitive", "compression_ratio"):
        assert getattr(ours, name) == getattr(theirs, name), name
    for piece, other_piece in zip(ours.pieces, theirs.pieces, strict=True):
        assert piece.logprob == pytest.approx(other_piece.logprob, abs=1e-3)
    # Attempts that give the same tokens at several temperatures are equally likely: either may count.
    assert ours.temperature == theirs.temperature or ours.temperature in ask.options.sampling.temperatures
    for name in ("avg_logprob", "last_text_logprob", "end_logprob"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=1e-3), name
    assert ours.no_speech_prob == pytest.approx(theirs.no_speech_prob, abs=1e-4)
    assert ours.language_probabilities == pytest.approx(theirs.language_probabilities, abs=1e-3)
    for one, other in zip(ours.segments, theirs.segments, strict=True):
        assert (one.text, one.tokens, one.temperature) == (other.text, other.tokens, ours.temperature)
        assert one.avg_logprob == pytest.approx(other.avg_logprob, abs=1e-3)
        # Of two tokens, every weight of the alignment is 1 or -1, and paths tie exactly.
        if len(wanted) > 2:
            assert (one.start_s, one.end_s) == (other.start_s, other.end_s)
            assert [(each.text, each.start_s, each.end_s) for each in one.words or ()] == [
                (each.text, each.start_s, each.end_s) for each in other.words or ()
            ]
        assert [each.probability for each in one.words or ()] == pytest.approx(
            [each.probability for each in other.words or ()], abs=1e-3
        )


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("models", "n_examples"),
    [("random", 3), *(pytest.param(*each, marks=pytest.mark.nightly) for each in MANY_EXAMPLES.items())],
    indirect=["models"],
)
def test_windows_give_what_they_give_alone(models: Models, n_examples: int) -> None:
    """Any mix of options, lengths and neighbours that come, end and are cancelled midway."""

    @settings(
        max_examples=n_examples,
        suppress_health_check=[HealthCheck.too_slow],
        phases=[Phase.reuse, Phase.generate],  # runs of a model are too slow to look for a smaller example
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        asks = data.draw(asks_of(models.checkpoint), "asks")
        check_invariance(models, asks, models.config(**data.draw(SETTINGS, "settings")))

    run()
