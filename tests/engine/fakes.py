"""A runner without a model: every window gets the tokens of a script. It pauses and fails where a test wants."""

import asyncio
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.decoding.beam_search import SampledToken
from tutti_server.engine.decoding.prompt import Prompt
from tutti_server.engine.decoding.sampling import Draw
from tutti_server.engine.decoding.word_timing import Alignment
from tutti_server.engine.model.kv_cache import SlotAllocator
from tutti_server.engine.probe import Speed
from tutti_server.engine.runner import Prefilled, Transcribed

PATIENCE_S = 20.0
"""How long a paused stage, or a test that waits for one, waits before it fails, in seconds."""

Script = Callable[[NDArray[np.float32]], Iterator[int]]


class Pause:
    """Holds the engine's thread at a stage until the test ends the pause."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._ended = threading.Event()

    def hold(self) -> None:
        self._reached.set()
        assert self._ended.wait(PATIENCE_S), "the test did not end the pause"

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, PATIENCE_S), "the stage was not reached"

    def end(self) -> None:
        self._ended.set()


@dataclass(frozen=True, slots=True)
class FakeStep:
    slots: tuple[int, ...]
    tokens: dict[int, SampledToken]


class FakeRunner:
    """Stands in for `tutti_server.engine.runner.Runner`."""

    def __init__(self, checkpoint: Checkpoint, script: Script, n_slots: int = 4, n_ahead: int = 0) -> None:
        self.n_ahead = n_ahead
        self.n_filling = n_slots
        self.min_encode_work = 0.0
        self.encode_s = 0.001
        """Seconds of encoder time per full window, as `warm_up` reports."""
        self.encodes_beside_steps = False
        self.encode_device_share = self.step_device_share = 1.0
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Future[None] | None = None
        self.still_encodes: Callable[[], bool] = lambda: False
        self.checkpoint = checkpoint
        self.device, self.dtype = torch.device("cpu"), "float32"
        self.n_parameters = 0
        self.slots = SlotAllocator(n_slots)
        self.encoded: list[list[NDArray[np.float32]]] = []
        """The windows of each encoder call."""
        self.prefilled: list[tuple[Prompt, Draw]] = []
        self.prefill_sizes: list[int] = []
        """The number of prompts of each prefill."""
        self.n_steps = self.n_collected = 0
        self.n_idle_steps = 0
        """Steps without a slot."""
        self.pauses: defaultdict[str, list[Pause]] = defaultdict(list)
        """By stage; each pause stops one call."""
        self.faults: dict[str, Exception] = {}
        """By stage: the error that it raises."""
        self.single_faults: dict[str, Exception] = {}
        """By stage: the error that its next call raises."""
        self.logprob = -0.5
        """The log-probability of every token."""
        self._script = script
        self._windows: dict[int, NDArray[np.float32]] = {}
        self._running: dict[int, Iterator[int]] = {}

    def pause(self, stage: str) -> Pause:
        """Stop the next call of `stage`: warm_up, encode, prefill or step."""
        pause = Pause()
        self.pauses[stage].append(pause)
        return pause

    def fail_once(self, stage: str, fault: Exception) -> None:
        """Let the next call of `stage` raise an error, after its pause."""
        self.single_faults[stage] = fault

    def warm_up(self) -> Speed:
        self._enter("warm_up")
        return Speed(self.encode_s, self.encode_s / 3)

    def encode(
        self, windows: Sequence[NDArray[np.float32]], slots: Sequence[int], are_interims: Sequence[bool] = ()
    ) -> None:
        self.encoded.append(list(windows))
        self._windows.update(zip(slots, windows, strict=True))
        self._enter("encode")

    def return_free_memory(self) -> None:
        self._enter("return_free_memory")

    def return_unused_slots(self) -> None:
        self._enter("return_unused_slots")

    def begin_encoding(
        self, windows: Sequence[NDArray[np.float32]], slots: Sequence[int], are_interims: Sequence[bool]
    ) -> None:
        assert self.encodes_beside_steps
        self._under_way = self._thread.submit(self.encode, windows, slots, are_interims)

    def finish_encoding(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way:
            under_way.result()

    def is_encoding(self) -> bool:
        return not self._under_way.done() if self._under_way else self.still_encodes()

    def encode_work(self, n_samples: int, is_interim: bool) -> float:
        return 1.0

    def detect_languages(self, slots: Sequence[int], candidates: Sequence[Collection[str]]) -> list[dict[str, float]]:
        return [{"en": 0.75, "de": 0.25} for _ in slots]

    def launch_prefill(self, slots: Sequence[int], prompts: Sequence[Prompt], draws: Sequence[Draw]) -> list[Prefilled]:
        self._enter("prefill")
        self.prefilled += zip(prompts, draws, strict=True)
        self.prefill_sizes.append(len(prompts))
        for slot in slots:
            self._running[slot] = self._script(self._windows[slot])
        return [Prefilled((SampledToken(next(self._running[slot]), self.logprob),), 0.25) for slot in slots]

    def collect_prefill(self, launched: list[Prefilled]) -> list[Prefilled]:
        return launched

    def launch(self) -> FakeStep:
        self._enter("step")
        if not self._running:
            self.n_idle_steps += 1
            raise ValueError("a step needs slots that are running")
        self.n_steps += 1
        eot = self.checkpoint.tokenizer.eot
        tokens = {slot: SampledToken(next(script, eot), self.logprob) for slot, script in self._running.items()}
        return FakeStep(tuple(tokens), tokens)

    def collect(self, step: FakeStep) -> dict[int, SampledToken]:
        self._enter("collect")
        self.n_collected += 1
        return step.tokens

    def align(self, slots: Sequence[int], transcripts: Sequence[Transcribed]) -> list[Alignment]:
        """Every token is spoken a tenth of a second after the one before."""
        self._enter("align")
        return [
            Alignment(
                tuple(round(0.1 * at, 1) for at in range(len(each.tokens))),
                ((0.0, math.inf),),
                (0.5,) * len(each.tokens),
            )
            for each in transcripts
        ]

    def end_decoding(self, slot: int) -> None:
        del self._running[slot]

    def release(self, slot: int) -> None:
        self._enter("release")
        self._running.pop(slot, None)
        self.slots.free(slot)

    def _enter(self, stage: str) -> None:
        if self.pauses[stage]:
            self.pauses[stage].pop(0).hold()
        if stage in self.single_faults:
            raise self.single_faults.pop(stage)
        if stage in self.faults:
            raise self.faults[stage]
