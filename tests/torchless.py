"""Makes an environment without PyTorch: `python -m tests.torchless FOLDER` inside the environment that has everything.

The service must run and be tested without PyTorch; an import that slipped in shows only where there is none. The new
environment's packages are links to those of the present one, so that it takes a second and no network.
"""

import sys
import sysconfig
import venv
from pathlib import Path

LEFT_OUT = ("torch", "torchgen", "functorch", "triton", "transformers", "safetensors", "nvidia", "cuda")
"""The packages that only the engine needs, by the beginning of the names of their folders."""


def is_left_out(name: str) -> bool:
    """Whether an entry of site-packages belongs to a package of `LEFT_OUT`."""
    return name.lower().split("-")[0].split(".")[0].split("_")[0] in LEFT_OUT


def make(folder: Path) -> None:
    """Make the environment at `folder`. Links that were there before are renewed."""
    venv.create(folder, symlinks=True, clear=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not is_left_out(entry.name) and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
