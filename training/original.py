"""Says whether two checkpoints have the same weights: `python -m training.original FOLDER openai/whisper-base`."""

import sys

import torch
from torch import Tensor

from tutti_server.engine.checkpoint.checkpoint import read_checkpoint
from tutti_server.engine.checkpoint.contents import Weight


def main() -> None:
    """Compare two checkpoints of any form that tutti reads, and exit with 1 if they differ."""
    one, other = sys.argv[1:]
    different = different_weights(one, other)
    print(f"{len(different)} weights differ" + "".join(f"\n  {name}" for name in different))
    sys.exit(bool(different))


def different_weights(one: str, other: str) -> list[str]:
    """The names of the weights in which two checkpoints differ, in half precision. What one lacks is zero in it."""
    found, expected = read_checkpoint(one).weights(), read_checkpoint(other).weights()

    def numbers(weight: Weight | None) -> Tensor:
        if weight is None:
            return torch.zeros(1, dtype=torch.float16)
        return torch.cat([torch.as_tensor(block).flatten() for _, _, block in weight.blocks()]).half()

    def are_equal(name: str) -> bool:
        pair = numbers(found.get(name)), numbers(expected.get(name))
        return (1 in map(len, pair) and not any(each.any() for each in pair)) or torch.equal(*pair)

    return sorted(name for name in found.keys() | expected.keys() if not are_equal(name))


if __name__ == "__main__":
    main()
