"""Checkpoints, speech and engines for the tests of the engine: helpers, and the fixtures of `conftest.py`."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.engine.checkpoints import SHAPES, Shape, make_checkpoint
from tests.engine.fakes import PATIENCE_S, FakeRunner, Script
from tests.engine.reference import Reference
from tests.recordings import read
from tests.small_model import SMALL_MODEL
from tutti_server.engine.api import DecodeOptions, DoneEvent, EngineEvent, Priority, Transcriber, Window
from tutti_server.engine.checkpoint.checkpoint import Checkpoint, read_checkpoint
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine
from tutti_server.engine.runner import Prefilled, Runner
from tutti_server.engine.scheduling import worker

Samples = NDArray[np.float32]


def read_clip(name: str) -> Samples:
    """A clip of `tests/audio`, float32 at 16 kHz."""
    samples: Samples = read(name).astype(np.float32) / np.float32(32_768)
    return samples


def prefill(runner: Runner, *arguments: Any) -> list[Prefilled]:
    """Launch a prefill and wait for it; see `Runner.launch_prefill`."""
    return runner.collect_prefill(runner.launch_prefill(*arguments))


def noise(seed: int, n_samples: int = 48_000) -> Samples:
    """Noise in bands that come and go: random models give different text for different seeds."""
    rng = np.random.default_rng(seed)
    at_s = np.arange(n_samples) / 16_000
    tones = [np.sin(2 * np.pi * (rng.uniform(100, 4000) * at_s + rng.uniform())) for _ in range(4)]
    envelopes = [0.5 + 0.5 * np.sin(2 * np.pi * (rng.uniform(0.2, 3) * at_s + rng.uniform())) for _ in range(4)]
    mixed = sum(tone * envelope for tone, envelope in zip(tones, envelopes, strict=True))
    return (0.1 * mixed + 0.02 * rng.standard_normal(n_samples)).astype(np.float32)


def window(session: str = "", priority: Priority = Priority.FINAL, channel: int = 0, **options: Any) -> Window:
    """A second of audio, for runners whose text is a script."""
    samples, decode_options = np.full(16_000, 0.1, np.float32), DecodeOptions(**options)
    return Window(samples=samples, session=session, channel=channel, priority=priority, options=decode_options)


def kinds(events: list[EngineEvent]) -> list[type]:
    return [type(event) for event in events]


async def begin(engine: Engine, *windows: Window) -> list[asyncio.Task[list[EngineEvent]]]:
    """Submit windows, in this order, and collect their events meanwhile."""
    tasks = [asyncio.create_task(collect(engine, window)) for window in windows]
    await asyncio.sleep(0)  # each task submits its window and then waits for the first event
    return tasks


async def collect(engine: Transcriber, window: Window) -> list[EngineEvent]:
    """All events of a window."""
    async with engine.submit(window) as events:
        return [event async for event in events]


async def done_of(engine: Engine, window: Window) -> DoneEvent:
    """The last event of a window that is decoded."""
    *_, done = await collect(engine, window)
    assert isinstance(done, DoneEvent)
    return done


@asynccontextmanager
async def start_engine(runner: Runner | FakeRunner, **settings: object) -> AsyncIterator[Engine]:
    """An engine around a runner that is loaded already."""
    config = EngineConfig(**({"n_slots": runner.slots.n_free, "max_wait_ms": 0} | settings))  # type: ignore[arg-type]
    async with Engine.start(config, load=lambda _: runner) as engine:  # type: ignore[arg-type,return-value]
        yield engine


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Threads of small models wait for each other more than they work, above all on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture
def threads() -> Iterator[None]:
    """Brings the number of threads back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def plain_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own products are slow in Triton's interpreter, and have tests of their own."""
    monkeypatch.setattr("tutti_server.engine.cuda.fused_model.MAX_TRITON_ROWS", 0)


@pytest.fixture(scope="session")
def small_checkpoint() -> Checkpoint:
    return read_checkpoint(SMALL_MODEL)


@pytest.fixture
def good_morning(small_checkpoint: Checkpoint) -> Script:
    """Every window holds two words between 0 s and 0.5 s."""
    tokenizer = small_checkpoint.tokenizer
    first = tokenizer.first_timestamp
    tokens = [first, *tokenizer.encode(" good morning"), first + 25, tokenizer.eot]
    return lambda _: iter([*tokens, *repeat(tokenizer.eot, 9)])


@pytest.fixture
def runner(small_checkpoint: Checkpoint, good_morning: Script) -> FakeRunner:
    """A runner without a model."""
    return FakeRunner(small_checkpoint, good_morning)


@pytest.fixture
async def patience() -> AsyncIterator[None]:
    """No test with it hangs."""
    async with asyncio.timeout(PATIENCE_S):
        yield


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine does not wait before it repeats a step that failed."""
    monkeypatch.setattr(worker, "FAILURE_PAUSE_S", 0.0)


@pytest.fixture(scope="session")
def small_runner(small_checkpoint: Checkpoint) -> Runner:
    """It encodes full windows, as the reference does."""
    return Runner(small_checkpoint, EngineConfig(n_slots=8, audio_context="full"))


@pytest.fixture(scope="session")
def short_runner(small_checkpoint: Checkpoint) -> Runner:
    """It encodes windows at the length of their audio."""
    return Runner(small_checkpoint, EngineConfig(n_slots=8))


@pytest.fixture(scope="session")
def small_reference(small_folder: Path) -> Reference:
    return Reference(small_folder)


BY_DAY = "multilingual-128-mels"
"""The small model has 80 mels, few positions are a limit of tokens, and an English-only model differs in its prompt."""


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(shape, id=shape.name, marks=[] if shape.name == BY_DAY else [pytest.mark.nightly])
        for shape in SHAPES
    ],
)
def random_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random checkpoints of several shapes: tests run with each."""
    shape: Shape = request.param
    return make_checkpoint(tmp_path_factory.mktemp(shape.name), shape)


@pytest.fixture(scope="session")
def random_runner(random_folder: Path) -> Runner:
    return Runner(read_checkpoint(str(random_folder)), EngineConfig(n_slots=8))


@pytest.fixture(scope="session")
def random_reference(random_folder: Path) -> Reference:
    return Reference(random_folder)


@pytest.fixture
def exact_eight_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's interpreter, 3.9, halves a number that is rounded up to a power of two; PyTorch does not."""
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    convert = interpreter._convert_float

    def converted(data: Samples, source: object, target: object, rounding: object) -> NDArray[np.generic]:
        if str(target) != "fp8e4nv":
            return convert(data, source, target, rounding)  # type: ignore[no-any-return]
        return torch.from_numpy(data).to(torch.float8_e4m3fn).view(torch.uint8).numpy()

    monkeypatch.setattr(interpreter, "_convert_float", converted)
