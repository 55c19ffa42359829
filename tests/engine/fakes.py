"""A runner without a model: every window gets the tokens of a script. It can pause and break where a test wants."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engine.checkpoint.checkpoint import Checkpoint
from engine.decoding.prompt import Prompt
from engine.decoding.sampling import Draw
from engine.decoding.word_timing import Alignment
from engine.model.kv_cache import SlotAllocator
from engine.runner import Prefilled, SampledToken, Transcribed

PATIENCE_S = 20.0
"""How long a paused stage, or a test that waits for one, holds out before it gives up."""

Script = Callable[[NDArray[np.float32]], Iterator[int]]


class SpeechFilter:
    """Holds the engine's thread at a stage until the test lets it go on."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def hold(self) -> None:
        self._reached.set()
        assert self._opened.wait(PATIENCE_S), "nobody opened the gate"

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, PATIENCE_S), "the stage was not reached"

    def open(self) -> None:
        self._opened.set()


@dataclass(frozen=True, slots=True)
class FakeStep:
    slots: tuple[int, ...]
    tokens: dict[int, SampledToken]


class FakeRunner:
    """Stands in for `engine.runner.Runner`."""

    def __init__(self, checkpoint: Checkpoint, script: Script, n_slots: int = 4, n_ahead: int = 0) -> None:
        self.n_ahead = n_ahead
        self.n_filling = n_slots
        self.min_encode_share = 0.0
        self.encode_s = 0.001
        """Of a full window, as measured."""
        self.still_encodes: Callable[[], bool] = lambda: False
        self.checkpoint = checkpoint
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.n_parameters = 0
        self.slots = SlotAllocator(n_slots)
        self.encoded: list[list[NDArray[np.float32]]] = []
        """The windows of each encoder call."""
        self.prefilled: list[tuple[Prompt, Draw]] = []
        self.passes: list[int] = []
        """Prompts of each prefill."""
        self.n_steps = 0
        self.gates: defaultdict[str, list[SpeechFilter]] = defaultdict(list)
        """By stage; each gate stops one call."""
        self.faults: dict[str, Exception] = {}
        """By stage: raised there."""
        self.logprob = -0.5
        """Of every token."""
        self._script = script
        self._heard: dict[int, NDArray[np.float32]] = {}
        self._running: dict[int, Iterator[int]] = {}

    def pause(self, stage: str) -> SpeechFilter:
        """Stop the next call of `stage`: warm_up, encode, prefill or step."""
        gate = SpeechFilter()
        self.gates[stage].append(gate)
        return gate

    def warm_up(self) -> float:
        self._enter("warm_up")
        return self.encode_s

    def encode(
        self, windows: Sequence[NDArray[np.float32]], slots: Sequence[int], are_interims: Sequence[bool] = ()
    ) -> None:
        self.encoded.append(list(windows))
        self._heard.update(zip(slots, windows, strict=True))
        self._enter("encode")

    def is_encoding(self) -> bool:
        return self.still_encodes()

    def encode_share(self, n_samples: int, is_interim: bool) -> float:
        return 1.0

    def detect_languages(self, slots: Sequence[int]) -> list[dict[str, float]]:
        return [{"en": 0.75, "de": 0.25} for _ in slots]

    def prefill(
        self,
        slots: Sequence[int],
        prompts: Sequence[Prompt],
        with_timestamps: Sequence[bool],
        draws: Sequence[Draw],
    ) -> list[Prefilled]:
        self._enter("prefill")
        self.prefilled += zip(prompts, draws, strict=True)
        self.passes.append(len(prompts))
        for slot in slots:
            self._running[slot] = self._script(self._heard[slot])
        return [Prefilled((SampledToken(next(self._running[slot]), self.logprob),), 0.25) for slot in slots]

    def launch(self) -> FakeStep:
        self._enter("step")
        self.n_steps += 1
        eot = self.checkpoint.tokenizer.eot
        tokens = {slot: SampledToken(next(script, eot), self.logprob) for slot, script in self._running.items()}
        return FakeStep(tuple(tokens), tokens)

    def collect(self, step: FakeStep) -> dict[int, SampledToken]:
        self._enter("collect")
        return step.tokens

    def align(self, slots: Sequence[int], transcripts: Sequence[Transcribed]) -> list[Alignment]:
        """Every token is said a tenth of a second after the one before."""
        self._enter("align")
        return [
            Alignment(tuple(round(0.1 * at, 1) for at in range(len(each.tokens))), (0.5,) * len(each.tokens))
            for each in transcripts
        ]

    def release(self, slot: int) -> None:
        self._enter("release")
        self._running.pop(slot, None)
        self.slots.free(slot)

    def _enter(self, stage: str) -> None:
        if self.gates[stage]:
            self.gates[stage].pop(0).hold()
        if stage in self.faults:
            raise self.faults[stage]
