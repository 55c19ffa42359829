"""Teaches a trained decoder to read what stands before `<|startoftranscript|>`: names, terms, text that came before.

The encoder stays as it is. A model that was trained on prompts that say nothing about the audio has learnt to look away
from them, and lists of names alone do not turn it back. So the schedule begins without audio: sentences are copied out
of the prompt until attention finds them there. Then there is speech, of which some words, or all, are cut out and stand
in the prompt alone. In the end nothing is cut, and what helps is a list of words hard to spell among others that nobody
says. Beside all this the decoder is held to what it wrote before on ordinary windows, so that it loses nothing.
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
from training.model.windows import Plan
from training.speech.bank import Bank
from training.speech.bank_index import SAMPLE_RATE
from training.train import Trainer, main

logger = logging.getLogger(__name__)

LOOK_EVERY = 10
"""Batches between two looks at what the prompts are worth."""


class PromptTrainer(Trainer):
    planners = (PromptPlanner, KeptPlanner, SilentPlanner) * 2
    frozen = ("model.encoder.", "ctc.")

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--held-to", type=Path, help="weights that ordinary windows are held to, if not --weights")
        parser.add_argument("--skip", type=float, default=0.0, help="share of the schedule that is left out")

    def _restore(self) -> None:
        self._load_weights(self.args.held_to or self.args.weights)
        self.before = copy.deepcopy(self.model.model.decoder).requires_grad_(False)
        self._load_weights(self.args.weights)
        self.elapsed_before = self.args.skip * self.args.seconds
        self.looks = 0
        self.look: dict[str, Tensor] = {}
        super()._restore()

    def _gradients(self, plan: Plan, bank: Bank, frontend: Frontend, loss_function: Any) -> dict[str, Tensor]:
        body = self.model.model
        has_audio = bool(plan.ends.any())
        mel = self._mel(plan, bank, frontend) if has_audio else self._silence(plan.seconds, frontend)
        tokens, targets = self._moved(plan.inputs), self._moved(plan.targets)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_cuda):
            with torch.no_grad():
                states = body.encoder(mel).expand(len(tokens), -1, -1)
            hidden, embedding = body.decoder(tokens, states), body.decoder.embed_tokens.weight
            loss, shown = loss_function(hidden, embedding, targets, self.ids.first_timestamp)
            if not plan.is_prompted:
                with torch.no_grad():
                    before = self.before(tokens, states)
                loss = _divergence(hidden, embedding, before, self.before.embed_tokens.weight, targets)
        loss.backward()
        if not has_audio:
            # Silence teaches nothing about listening, and Muon would make full steps of the smallest gradients.
            for name, parameter in body.decoder.named_parameters():
                if "encoder_attn" in name or "embed_tokens" in name:
                    assert parameter.grad is not None
                    parameter.grad.zero_()
        if plan.is_prompted and plan.has_speech.any():
            self.looks += 1
            if self.looks % LOOK_EVERY == 1:
                self._look(plan, states, hidden.detach())
        return {"loss": loss.detach(), "shown": shown, "ctc": torch.zeros_like(loss)}

    def _silence(self, seconds: float, frontend: Frontend) -> Tensor:
        return frontend.log_mel(torch.zeros(1, int(seconds * SAMPLE_RATE), device=self.device))

    @torch.no_grad()
    def _look(self, plan: Plan, states: Tensor, hidden: Tensor) -> None:
        """What the tokens that stand in the prompt cost, with it and without it."""
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
            alone = decoder(self._moved(bare), states)
        for name, found, wanted, mask in (
            ("with", hidden, plan.targets, is_listed),
            ("without", alone, targets, listed & inside),
        ):
            chosen = self._moved(mask)
            logits = F.linear(found[chosen].float(), decoder.embed_tokens.weight)
            self.look[name] = F.cross_entropy(logits, self._moved(wanted)[chosen])

    def _log(self, *shown: Any) -> None:
        super()._log(*shown)
        logger.info("listed tokens: %s", {name: round(float(value), 3) for name, value in self.look.items()})


def _divergence(hidden: Tensor, embedding: Tensor, before: Tensor, old_embedding: Tensor, targets: Tensor) -> Tensor:
    """Kullback and Leibler's, of what the decoder writes from what it wrote before."""
    counted = targets >= 0
    new = F.linear(hidden[counted], embedding.to(hidden.dtype)).float().log_softmax(-1)
    old = F.linear(before[counted], old_embedding.to(before.dtype)).float().log_softmax(-1)
    return F.kl_div(new, old, reduction="batchmean", log_target=True)


if __name__ == "__main__":
    main(PromptTrainer)
