"""A runner whose searches the device decides, against one whose searches the host decides.

Steps are launched ahead, and slots are given to other windows meanwhile. Without a GPU, Triton's interpreter runs them.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch

pytest.importorskip("triton")

from tests.engine.checkpoints import Shape, make_checkpoint
from tests.engine.engines import noise
from tutti_server.engine.api import Sampling
from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.cuda import fused_model, fused_sampling
from tutti_server.engine.decoding.beam_search import BeamSearch, SampledToken
from tutti_server.engine.decoding.prompt import Prompt
from tutti_server.engine.decoding.sampling import Draw
from tutti_server.engine.runner import LaunchedStep, Runner

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for a GPU")


@dataclass(frozen=True)
class Case:
    """A window, and how it is decoded."""

    seed: int
    n_beams: int = 1
    max_tokens: int = 4
    patience: float = 1.0
    hotwords: tuple[tuple[int, ...], ...] = ()
    prefix: tuple[int, ...] = ()
    temperature: float = 0.0
    has_times: bool = True
    """Whether the model may mark times."""
    listens: bool = False
    """Whether it asks for attention peaks."""


@dataclass
class Running:
    case: Case
    slots: tuple[int, ...]
    search: BeamSearch | None
    tokens: list[SampledToken] = field(default_factory=list)


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Runner, Runner]]:
    """A runner with plain kernels, and one with fused kernels."""
    shape = Shape("fused", d_model=64, heads=1, encoder_layers=1, decoder_layers=1)
    checkpoint = read_checkpoint(str(make_checkpoint(tmp_path_factory.mktemp("fused"), shape)))
    config = EngineConfig(device="cpu", n_slots=8, audio_context="interims", cuda_graphs=False, kernels="torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tutti_server.engine.model.linear.can_pack", lambda *_: False)
        # Our own products are slow in Triton's interpreter, and have tests of their own.
        patch.setattr(fused_model, "MAX_TRITON_ROWS", 0)
        # The small vocabulary needs two blocks.
        patch.setattr(fused_sampling, "_BLOCK", 1024)
        # Warming up measures nothing.
        patch.setattr("tutti_server.engine.runner.shortest_s", lambda run, *_: float(run() is None))
        plain = Runner(checkpoint, config)
        patch.setattr("tutti_server.engine.runner.uses_fused_kernels", lambda *_: True)
        yield plain, Runner(checkpoint, config)


class Scheduler:
    """Decodes windows with steps that are launched ahead of the host, as many as `n_ahead`."""

    def __init__(self, runner: Runner, n_ahead: int) -> None:
        self.runner = runner
        self.n_ahead = n_ahead
        self.running: dict[int, Running] = {}
        """The windows, each by its slot."""
        self.found: dict[Case, list[SampledToken]] = {}
        self.in_flight: deque[tuple[LaunchedStep, dict[int, Running]]] = deque()

    def decode(self, rounds: Sequence[Sequence[Case]]) -> dict[Case, list[SampledToken]]:
        """Decode the windows of the first round, and begin each next round when another window has ended."""
        n_begun = 0
        try:
            while self.running or n_begun < len(rounds):
                if n_begun < len(rounds) and len(self.found) >= n_begun:
                    self.begin(rounds[n_begun])
                    n_begun += 1
                if self.running:
                    self.launch()
                self.collect()
        finally:
            for own in list(self.running.values()):
                self.release(own)
        return self.found

    def begin(self, cases: Sequence[Case]) -> None:
        """Encode windows and prefill their prompts. A step is launched before the first tokens are known."""
        tokenizer = self.runner.checkpoint.tokenizer
        prompts: list[Prompt] = []
        draws: list[Draw] = []
        begun: dict[int, Running] = {}
        for case in cases:
            slots = tuple(self.runner.slots.allocate() for _ in range(case.n_beams))
            search = None
            if case.n_beams > 1:
                search = self.runner.search_type(
                    Sampling(beam_size=case.n_beams, patience=case.patience),
                    eot=tokenizer.eot,
                    max_tokens=case.max_tokens + len(case.prefix),
                    prefix=case.prefix,
                    slots=slots,
                )
            begun[slots[0]] = Running(case, slots, search)
            tokens = (tokenizer.sot, *case.prefix)
            prompt = Prompt(tokens=tokens, sot_index=0, n_prefix=len(case.prefix), with_timestamps=case.has_times)
            prompts.append(replace(prompt, hotwords=case.hotwords))
            draws.append(Draw(case.temperature, case.seed, 16_000 if case.listens else 0, search))
        self.running |= begun
        self.runner.encode([noise(case.seed, 16_000) for case in cases], list(begun), [True] * len(begun))
        launched = self.runner.launch_prefill(list(begun), prompts, draws)
        if self.n_ahead and not self.in_flight:
            self.launch()
        for own, prefilled in zip(begun.values(), self.runner.collect_prefill(launched), strict=True):
            self.accept(own, prefilled.tokens)

    def launch(self) -> None:
        self.in_flight.append((self.runner.launch(), dict(self.running)))

    def collect(self) -> None:
        """Take over the tokens of all steps but those ahead. Some belong to windows that have ended meanwhile."""
        while len(self.in_flight) > self.n_ahead or (self.in_flight and not self.running):
            step, owners = self.in_flight.popleft()
            sampled = self.runner.collect(step)
            for slot, own in owners.items():
                if self.running.get(slot) is own:
                    self.accept(own, () if own.search else (sampled[slot],))

    def accept(self, own: Running, tokens: Sequence[SampledToken]) -> None:
        own.tokens += own.search.result if own.search else tokens
        if own.search.is_over if own.search else len(own.tokens) >= own.case.max_tokens:
            self.found[own.case] = own.tokens
            self.release(own)

    def release(self, own: Running) -> None:
        del self.running[own.slots[0]]
        for slot in own.slots:
            self.runner.release(slot)


def assert_as_alone(plain: Runner, found: dict[Case, list[SampledToken]], n_found: int) -> None:
    """Check that each window has the tokens, log-probabilities and attention peaks that it has alone on a host."""
    assert len(found) == n_found
    for case, tokens in found.items():
        expected = Scheduler(plain, n_ahead=0).decode([[case]])[case]
        assert [each.token for each in tokens] == [each.token for each in expected]
        assert [each.attention_peak_s for each in tokens] == [each.attention_peak_s for each in expected]
        assert [each.logprob for each in tokens] == pytest.approx([each.logprob for each in expected], abs=1e-4)


def assert_nothing_left(runner: Runner) -> None:
    assert (runner.states.running, runner.states.searches, runner.cache.has_borrowers) == ({}, {}, False)
    assert runner.slots.n_free == 8


HOTWORDS = ((30, 31), (32,))
ROUNDS: dict[str, tuple[tuple[Case, ...], ...]] = {
    "sizes": ((Case(11, 2, has_times=False), Case(2, 5)), (Case(3, 3, prefix=(40, 41)), Case(4))),
    "first step": ((Case(1, 3, max_tokens=1), Case(2, 2, max_tokens=1), Case(3)), (Case(4, 2),)),
    "slots of others": (
        (Case(1, 2, max_tokens=2), Case(2, 3, max_tokens=6), Case(3)),
        (Case(4, 2, max_tokens=3),),
        (Case(5), Case(6)),
    ),
    "hotwords": ((Case(1, 2, hotwords=HOTWORDS), Case(2, 3)), (Case(3),)),
    "temperature": ((Case(1, 3), Case(2, temperature=0.8)), (Case(3, 2),)),
    "attention peaks": ((Case(1, 2, listens=True), Case(2, 3)), (Case(3, listens=True),)),
    "all": (
        (Case(1, 2, hotwords=HOTWORDS, listens=True), Case(2, temperature=0.8), Case(3, 3, max_tokens=2)),
        (Case(4, 2, patience=0.5),),
        (Case(5, 3, patience=2.0),),
    ),
}
NIGHTLY = ("sizes", "hotwords", "first step", "slots of others", "temperature", "all")


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(rounds, id=name, marks=[pytest.mark.nightly] if name in NIGHTLY else [])
        for name, rounds in ROUNDS.items()
    ],
)
def test_windows_among_others_find_what_each_finds_alone_on_a_host(
    runners: tuple[Runner, Runner], rounds: tuple[tuple[Case, ...], ...]
) -> None:
    """Although the device decides, and the host is a step behind."""
    plain, fused = runners
    assert_as_alone(plain, Scheduler(fused, n_ahead=1).decode(rounds), sum(map(len, rounds)))
    assert_nothing_left(fused)


@pytest.mark.nightly
def test_a_search_that_is_cancelled_leaves_its_slots_to_others(runners: tuple[Runner, Runner]) -> None:
    """The step in flight still decodes it when they begin."""
    plain, fused = runners
    scheduler = Scheduler(fused, n_ahead=1)
    scheduler.begin([Case(1, 3), Case(2, 2)])
    scheduler.launch()
    scheduler.release(scheduler.running[0])
    assert_as_alone(plain, scheduler.decode([[Case(3, 2), Case(4)]]), 3)
    assert_nothing_left(fused)
