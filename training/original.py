"""Says whether two checkpoints have the same weights: `python -m training.original FOLDER openai/whisper-base`."""

import sys

from training.recipe import same_weights


def main() -> None:
    """Compare two checkpoints of any form that tutti reads, and exit with 1 if they differ."""
    one, other = sys.argv[1:]
    different = same_weights(one, other)
    print(f"{len(different)} weights differ" + "".join(f"\n  {name}" for name in different))
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
