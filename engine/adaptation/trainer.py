"""Trains an encoder until the frozen decoder says the same over a cut window as the original over the full one."""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tutti_server.engine.adaptation.clips import ClipBatch, Clips
from tutti_server.engine.adaptation.reader import Reader, encode

STATES_LOSS = 0.1
"""The weight of the relative squared difference of encoder states, beside the divergence of the decoder's outputs."""
TIMED_SHARE = 0.3
"""The share of batches whose texts mark times."""
WARM_UP_SHARE = 0.1
"""The share of the training in which the learning rate rises."""
LEAST_RATE = 0.02
"""The learning rate at the end, as a fraction of its peak."""
AVERAGE = 0.998
"""How much of the averaged weights a step keeps. It keeps less at the beginning."""
MAX_GRADIENT = 1.0
MAX_TEXTS_AT_ONCE = 256
"""On a GPU up to this many clips are read together: a decode step takes about as long for all of them as for one."""
MAX_CACHE_BYTES = 8_000_000_000
"""The most memory of the keys and values of encoder states: large decoders read fewer clips together."""
GROUPS_MIXED = 4
"""This many groups of batches, each read together, are trained on in a mixed order."""
MAX_LOGITS = 200_000_000
"""Logits of a part of a batch, and values of its encoder states in all layers: a larger batch is trained in parts."""
STEPS_AHEAD = 8
"""On a GPU the clips of this many steps are made meanwhile."""
SAVE_EVERY_S = 60.0

STATE_FILE = "state.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How long and how fast to train."""

    steps: int | None = None
    """The number of steps; `None` to train for `minutes`."""
    minutes: float = 5.0
    """The time, that in which the original reads clips included."""
    batch: int = 64
    """Clips of a step."""
    learning_rate: float = 4e-5
    """The highest learning rate. It rises over the first steps, and falls as a cosine."""
    seed: int = 0
    """Chooses the clips. Equal seeds give equal weights on a CPU, if the number of steps is given."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What is reported after a step."""

    step: int
    loss: float
    seconds: float
    seconds_left: float


class Student(Protocol):
    """The model that is trained."""

    weights: list[Tensor]
    """The weights that are trained, with gradients."""

    def prepare(self) -> None:
        """Called before a step, and after the weights were changed."""

    def collect(self) -> None:
        """Called when a step's gradients are complete."""

    def states(self, features: Tensor, n_states: int) -> Tensor:
        """Encoder states of cut windows, as of `encode`."""

    def hidden(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Decoder states before the vocabulary's product: `(clips, tokens, d_model)`."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Multiply by the vocabulary."""


class EncoderStudent:
    """A copy of the original's encoder before the original's frozen decoder."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.encoder = copy.deepcopy(reader.model.model.encoder)
        self.weights: list[Tensor] = [
            weight for name, weight in self.encoder.named_parameters() if not name.startswith("embed_positions")
        ]
        for weight in self.weights:
            weight.requires_grad_(True)

    def prepare(self) -> None:
        """The weights are used as they are."""

    def collect(self) -> None:
        """The gradients are where they belong."""

    def states(self, features: Tensor, n_states: int) -> Tensor:
        """See `Student`."""
        return encode(self.encoder, features, n_states)

    def hidden(self, states: Tensor, tokens: Tensor) -> Tensor:
        """See `Student`."""
        return self._reader.hidden(states, tokens)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Student`."""
        return self._reader.logits(hidden)


class Trainer:
    """Trains a student until it says what the original does, and keeps its state in a folder."""

    def __init__(self, reader: Reader, student: Student, clips: Clips, training: Training, folder: Path) -> None:
        self._reader, self.student, self._clips, self._training = reader, student, clips, training
        self._folder = folder
        self._is_cuda = reader.device.type == "cuda"
        sizes = reader.model.config
        clip_bytes = 4 * sizes.max_source_positions * sizes.decoder_layers * sizes.d_model  # keys and values, bfloat16
        n_at_once = min(MAX_TEXTS_AT_ONCE, MAX_CACHE_BYTES // clip_bytes) if self._is_cuda else 1
        self._n_parts = max(1, n_at_once // training.batch)
        self._weights = student.weights
        self._averages = [weight.detach().clone() for weight in self._weights]
        self._optimizer = torch.optim.AdamW(self._weights, lr=0.0, betas=(0.9, 0.98), weight_decay=0.01)
        self.losses: list[tuple[float, float]] = []
        """The divergence and the difference of states of every step."""
        self.seconds = 0.0
        """How long the training took so far."""
        if (folder / STATE_FILE).exists():
            self._load()

    def train(self, report: Callable[[Progress], None], save_every_s: float = SAVE_EVERY_S) -> None:
        """Train to the end, and leave the averaged weights in the student."""
        saved_s = time.monotonic()
        begin_s = saved_s - self.seconds
        while (done := self._share_done()) < 1:
            loss = self._step(done)
            now_s = time.monotonic()
            self.seconds = now_s - begin_s
            left_s = self.seconds * (1 / share - 1) if (share := self._share_done()) else 0.0
            if now_s - saved_s >= save_every_s:
                self._save()
                saved_s = now_s
            report(Progress(len(self.losses), loss, self.seconds, left_s))
        self._save()
        for weight, average in zip(self._weights, self._averages, strict=True):
            weight.data.copy_(average)
        self.student.prepare()

    def _share_done(self) -> float:
        steps = self._training.steps
        return min(1.0, self.seconds / (60 * self._training.minutes) if steps is None else len(self.losses) / steps)

    def _step(self, share_done: float) -> float:
        step = len(self.losses)
        batch, tokens = self._batch(step)
        rate = max(LEAST_RATE, min(share_done / WARM_UP_SHARE, (1 + math.cos(math.pi * share_done)) / 2))
        for group in self._optimizer.param_groups:
            group["lr"] = self._training.learning_rate * rate
        self._optimizer.zero_grad(set_to_none=True)
        self.student.prepare()
        divergence, difference = self._backward(batch, tokens)
        self.student.collect()
        torch.nn.utils.clip_grad_norm_(self._weights, MAX_GRADIENT)
        self._optimizer.step()
        kept = min(AVERAGE, (step + 1) / (step + 20))
        for average, weight in zip(self._averages, self._weights, strict=True):
            average.lerp_(weight.detach(), 1 - kept)
        self.losses.append((divergence, difference))
        return divergence + STATES_LOSS * difference

    def _backward(self, batch: ClipBatch, tokens: Tensor) -> tuple[float, float]:
        """Add up the gradients of a batch, in parts that fit into the memory; returns the two losses."""
        n_clips, sizes = len(tokens), self._reader.model.config
        # No output counts after the first end of a text.
        counts = torch.ones_like(tokens[:, 1:], dtype=torch.bool)
        counts[:, 1:] = tokens[:, 1:-1] != self._reader.eot
        per_clip = max(tokens.shape[1] * sizes.vocab_size, batch.n_states * sizes.encoder_layers * sizes.d_model)
        n_rows = max(1, MAX_LOGITS // per_clip)
        total = torch.zeros(2, device=tokens.device)
        for rows in torch.split(torch.arange(n_clips, device=tokens.device), n_rows):
            with torch.autocast(tokens.device.type, torch.bfloat16, enabled=self._is_cuda):
                with torch.no_grad():
                    features = self._reader.features(batch.samples[rows])
                    expected_states = self._reader.states(features)
                    expected = _outputs(self._reader, expected_states, tokens[rows], counts[rows])
                states = self.student.states(features, batch.n_states)
                logits = _outputs(self.student, states, tokens[rows], counts[rows])
            divergence = F.kl_div(logits, expected, reduction="sum", log_target=True) / counts.sum()
            expected_states = expected_states.float()
            difference = F.mse_loss(states.float(), expected_states[:, : batch.n_states])
            difference = difference / expected_states.square().mean() * (len(rows) / n_clips)
            (divergence + STATES_LOSS * difference).backward()  # type: ignore[no-untyped-call]
            total += torch.stack((divergence.detach(), difference.detach()))
        divergence_, difference_ = total.tolist()
        return divergence_, difference_

    def _batch(self, step: int) -> tuple[ClipBatch, Tensor]:
        group, part = self._place(step)
        tokens = self._texts(group)[part * self._training.batch :][: self._training.batch]
        tokens = tokens[:, : int((tokens != self._reader.eot).sum(1).max()) + 1]
        if not self._is_cuda:
            return self._clips.batch(group, part, self._training.batch), tokens
        later = [self._place(step + ahead) for ahead in range(1, STEPS_AHEAD + 1)]
        return self._clips.batch_and_later((group, part), later, self._training.batch), tokens

    def _place(self, step: int) -> tuple[int, int]:
        """Group and part of a step. Groups of a round are mixed, batches of a group have one length."""
        n_mixed = GROUPS_MIXED if self._is_cuda else 1
        n_round = n_mixed * self._n_parts
        order = np.random.default_rng((self._training.seed, step // n_round)).permutation(n_round)
        slot = int(order[step % n_round])
        return step // n_round * n_mixed + slot // self._n_parts, slot % self._n_parts

    def _texts(self, group: int) -> Tensor:
        """What the original reads in the clips of a group; kept in a file, so that it is read only once."""
        file = self._folder / "texts" / f"{group:06}.npy"
        if file.exists():
            return torch.from_numpy(np.load(file).astype(np.int64)).to(self._reader.device)
        batches = [self._clips.batch(group, part, self._training.batch) for part in range(self._n_parts)]
        is_timed = bool(np.random.default_rng((self._training.seed, group, 1 << 20)).random() < TIMED_SHARE)
        with torch.autocast(self._reader.device.type, torch.bfloat16, enabled=self._is_cuda):
            samples = torch.cat([batch.samples for batch in batches])
            tokens = self._reader.read(samples, batches[0].n_states, is_timed)
        file.parent.mkdir(exist_ok=True)
        np.save(part := file.with_suffix(".part.npy"), tokens.cpu().numpy().astype(np.int32))
        part.replace(file)
        return tokens

    def _save(self) -> None:
        state = {
            "weights": self._weights,
            "averages": self._averages,
            "optimizer": self._optimizer.state_dict(),
            "losses": self.losses,
            "seconds": self.seconds,
        }
        part = self._folder / (STATE_FILE + ".part")
        torch.save(state, part)
        part.replace(self._folder / STATE_FILE)

    def _load(self) -> None:
        state: dict[str, Any] = torch.load(self._folder / STATE_FILE, map_location="cpu", weights_only=True)
        for own, loaded in ((self._weights, state["weights"]), (self._averages, state["averages"])):
            for target, source in zip(own, loaded, strict=True):
                target.data.copy_(source)
        self._optimizer.load_state_dict(state["optimizer"])
        self.losses, self.seconds = [tuple(each) for each in state["losses"]], state["seconds"]


def _outputs(model: Reader | Student, states: Tensor, tokens: Tensor, counts: Tensor) -> Tensor:
    """Log-probabilities of the outputs that count: `(outputs, vocab_size)` float32."""
    return model.logits(model.hidden(states, tokens[:, :-1])[counts]).float().log_softmax(-1)
