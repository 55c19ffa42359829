"""Teaches a trained decoder to use the text before `<|startoftranscript|>`: names, terms and previous text.

The encoder is not trained. A model trained on prompts that say nothing about the audio has learnt to ignore them, and
lists of names alone do not change that. So the schedule has three phases:

1. Without audio: the decoder copies sentences out of the prompt, until its attention finds them there.
2. With speech from which some words, or all, are cut out. These words stand only in the prompt.
3. With whole speech. A list of words that are hard to spell helps, among other words that are not spoken.

In all phases, the decoder's output on ordinary windows is held to what it was before, so that it loses nothing.
"""

import argparse
import copy
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training.model.frontend import Frontend
from training.model.prompts import KeptPlanner, PromptPlanner, SilentPlanner
from training.model.windows import BatchPlan
from training.speech.bank import Bank
from training.speech.bank_index import SAMPLE_RATE
from training.train import Trainer, main

logger = logging.getLogger(__name__)

PROBE_EVERY = 10
"""Batches with prompts between two measurements of the effect of prompts."""


class PromptTrainer(Trainer):
    """Trains the decoder alone, on prompts that help and on windows that must stay as they were."""

    planners = (PromptPlanner, KeptPlanner, SilentPlanner) * 2
    frozen = ("model.encoder.", "ctc.")

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of this training."""
        parser.add_argument(
            "--held-to", type=Path, help="weights whose output ordinary windows are held to; default: --weights"
        )
        parser.add_argument("--skip", type=float, default=0.0, help="share of the schedule to skip at its beginning")

    def _restore(self) -> None:
        self.load_weights(self.args.held_to or self.args.weights)
        self.reference = copy.deepcopy(self.model.model.decoder).requires_grad_(False)
        self.load_weights(self.args.weights)
        self.record.elapsed_before_s = self.args.skip * self.args.seconds
        self.n_prompted = 0
        self.listed_loss: dict[str, Tensor] = {}
        super()._restore()

    def compute_gradients(
        self, plan: BatchPlan, bank: Bank, frontend: Frontend, loss_function: Any
    ) -> dict[str, Tensor]:
        """As in `Trainer`; on windows without helpful prompts the loss is the divergence from the reference decoder."""
        body = self.model.model
        has_audio = bool(plan.ends.any())
        mel = self.make_mel(plan, bank, frontend) if has_audio else self._silence(plan.seconds, frontend)
        tokens, targets = self.to_device(plan.inputs), self.to_device(plan.targets)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_cuda):
            with torch.no_grad():
                states = body.encoder(mel).expand(len(tokens), -1, -1)
            hidden, embedding = body.decoder(tokens, states), body.decoder.embed_tokens.weight
            loss, shown = loss_function(hidden, embedding, targets, self.ids.first_timestamp)
            if not plan.is_prompted:
                with torch.no_grad():
                    reference = self.reference(tokens, states)
                loss = _divergence(hidden, embedding, reference, self.reference.embed_tokens.weight, targets)
        torch.autograd.backward(loss)
        if not has_audio:
            # Silence teaches nothing about audio, and Muon makes full steps of even the smallest gradients.
            for name, parameter in body.decoder.named_parameters():
                if "encoder_attn" in name or "embed_tokens" in name:
                    assert parameter.grad is not None
                    parameter.grad.zero_()
        if plan.is_prompted and plan.has_speech.any():
            self.n_prompted += 1
            if self.n_prompted % PROBE_EVERY == 1:
                self._probe(plan, states, hidden.detach())
        return {"loss": loss.detach(), "shown": shown, "ctc": torch.zeros_like(loss)}

    def _silence(self, seconds: float, frontend: Frontend) -> Tensor:
        return frontend.log_mel(torch.zeros(1, int(seconds * SAMPLE_RATE), device=self.device))

    @torch.no_grad()
    def _probe(self, plan: BatchPlan, states: Tensor, hidden: Tensor) -> None:
        """Measure the loss of the tokens that stand in the prompt, with the prompt and without it."""
        decoder, start = self.model.model.decoder, self.ids.start
        n_before = (plan.inputs == start).argmax(1)
        prompts = [row[:n] for row, n in zip(plan.inputs, n_before.tolist(), strict=True)]
        is_listed = np.stack([np.isin(row, prompt) for row, prompt in zip(plan.targets, prompts, strict=True)])
        is_listed &= (plan.targets >= 0) & (plan.targets < self.ids.end) & ~np.isin(plan.targets, self.marks)
        index = np.arange(plan.inputs.shape[1]) + n_before[:, None]
        inside = index < plan.inputs.shape[1]
        index = np.where(inside, index, 0)
        bare, targets, listed = (
            np.take_along_axis(array, index, 1) for array in (plan.inputs, plan.targets, is_listed)
        )
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_cuda):
            alone = decoder(self.to_device(bare), states)
        for name, found, wanted, mask in (
            ("with", hidden, plan.targets, is_listed),
            ("without", alone, targets, listed & inside),
        ):
            chosen = self.to_device(mask)
            logits = F.linear(found[chosen].float(), decoder.embed_tokens.weight)
            self.listed_loss[name] = F.cross_entropy(logits, self.to_device(wanted)[chosen])

    def log(self, figures: dict[str, Tensor], plan: BatchPlan, bank: Bank, period: Any) -> None:
        """As in `Trainer`, and the loss of the tokens that stand in the prompt."""
        super().log(figures, plan, bank, period)
        logger.info("listed tokens: %s", {name: round(float(value), 3) for name, value in self.listed_loss.items()})


def _divergence(hidden: Tensor, embedding: Tensor, reference: Tensor, old_embedding: Tensor, targets: Tensor) -> Tensor:
    """The Kullback-Leibler divergence of the decoder's output from its earlier output."""
    counted = targets >= 0
    new = F.linear(hidden[counted], embedding.to(hidden.dtype)).float().log_softmax(-1)
    old = F.linear(reference[counted], old_embedding.to(reference.dtype)).float().log_softmax(-1)
    return F.kl_div(new, old, reduction="batchmean", log_target=True)


if __name__ == "__main__":
    main(PromptTrainer)
