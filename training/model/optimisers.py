"""The optimisers of the training and their learning rate: Muon for the matrices of the layers, AdamW for the rest.

Source of Muon: Keller Jordan, https://kellerjordan.github.io/posts/muon/.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

FLAT_UNTIL = 0.45
"""Share of the schedule up to which the learning rate is constant. From there it falls to zero."""
WARM_UP_STEPS = 250
"""Steps in which the learning rate rises, after every start with new optimisers."""


class Muon:
    """Momentum made orthogonal by Newton-Schulz iterations, for matrices, batched by shape."""

    def __init__(self, parameters: list[nn.Parameter], momentum: float = 0.95, weight_decay: float = 0.01) -> None:
        self.groups: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for parameter in parameters:
            self.groups.setdefault(tuple(parameter.shape), []).append(parameter)
        self.averages = {
            shape: torch.zeros(len(group), *shape, device=group[0].device) for shape, group in self.groups.items()
        }
        self.momentum, self.weight_decay = momentum, weight_decay

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Update all matrices with their gradients."""
        for shape, group in self.groups.items():
            gradient = torch.stack([parameter.grad for parameter in group if parameter.grad is not None])
            average = self.averages[shape]
            average.lerp_(gradient, 1 - self.momentum)
            update = gradient.lerp(average, self.momentum).bfloat16()
            is_tall = shape[0] > shape[1]
            if is_tall:
                update = update.mT
            update = update / (update.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):
                product = update @ update.mT
                update = 3.4445 * update + (-4.7750 * product + 2.0315 * (product @ product)) @ update
            if is_tall:
                update = update.mT
            scaled = update.float() * (rate * max(1, shape[0] / shape[1]) ** 0.5)
            torch._foreach_mul_(tuple(group), 1 - rate * self.weight_decay)
            torch._foreach_sub_(tuple(group), list(scaled.unbind(0)))


class Optimisers:
    """Updates the trained parameters of a network by the schedule."""

    def __init__(
        self, named: Iterable[tuple[str, nn.Parameter]], *, muon_rate: float, adam_rate: float, is_cuda: bool
    ) -> None:
        """`named`: the parameters to train, with their names. The rates are those of the constant phase."""
        named = list(named)
        matrices = [p for name, p in named if _is_layer_matrix(name, p)]
        tokens = [p for name, p in named if "embed_tokens" in name]
        rest = [p for name, p in named if not _is_layer_matrix(name, p) and "embed_tokens" not in name]
        self.parameters = [p for _, p in named]
        self._muon = Muon(matrices)
        groups = [{"params": rest, "factor": 1.0}, {"params": tokens, "factor": 0.7}]
        self._adam = torch.optim.AdamW(
            groups, lr=adam_rate, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=is_cuda
        )
        self._muon_rate, self._adam_rate = muon_rate, adam_rate
        self._n_steps = 0

    def rate(self, progress: float) -> float:
        """The learning rate at this share of the schedule, as a share of the full one."""
        warm_up = min(1.0, (self._n_steps + 1) / WARM_UP_STEPS)
        return warm_up * min(1.0, max(0.0, (1 - progress) / (1 - FLAT_UNTIL))) + 0.003

    def step(self, progress: float) -> Tensor:
        """Clip the gradients, update the parameters and drop the gradients. Returns the norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self._n_steps += 1
        rate = self.rate(progress)
        for group in self._adam.param_groups:
            group["lr"] = self._adam_rate * group["factor"] * rate
        self._adam.step()
        self._muon.step(self._muon_rate * rate)
        self.drop_gradients()
        return norm

    def drop_gradients(self) -> None:
        """Free the gradients of all trained parameters."""
        for parameter in self.parameters:
            parameter.grad = None

    def state(self) -> dict[str, Any]:
        """What `restore` needs."""
        return {"adam": self._adam.state_dict(), "muon": self._muon.averages}

    def restore(self, state: dict[str, Any], n_steps: int) -> None:
        """Continue from a saved state after `n_steps` steps."""
        self._adam.load_state_dict(state["adam"])
        for shape, saved in state["muon"].items():
            self._muon.averages[shape].copy_(saved)
        self._n_steps = n_steps


def _is_layer_matrix(name: str, parameter: nn.Parameter) -> bool:
    return ".layers." in name and parameter.dim() == 2
