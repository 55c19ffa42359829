"""Decides on which GPU, or with how many CPU threads, each engine of a service runs.

Several engines may share a GPU. Each has a Python interpreter of its own, and the GPU idles less where the interpreter
is what limits: in live sessions with short windows.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.settings import AUTO, Settings
from tutti_server.engine.cores import n_usable_cores

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
"""The environment variable that names the GPUs of a process, separated by commas."""
COUNT_GPUS = "import torch; print(torch.cuda.device_count())"


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """What one engine process gets of the machine."""

    threads: int
    """See `Settings.threads`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables that its process sets before it loads torch."""
    gpu_share: float = 1.0
    """The part of its GPU that it has; see `EngineConfig.gpu_share`."""


def place_engines(settings: Settings) -> tuple[EnginePlace, ...]:
    """Return the place of each engine.

    Where there are GPUs, each engine has one of its own, or each GPU has equally many engines. An outer
    `CUDA_VISIBLE_DEVICES` says which GPUs there are.

    Raises:
        SettingsError: there are more engines than GPUs, and no equal number for each.
    """
    if settings.engines == "1":
        return (EnginePlace(settings.threads),)
    gpus = () if settings.device == "cpu" else visible_gpus(os.environ)
    n_engines = (len(gpus) or 1) if settings.engines == AUTO else int(settings.engines)
    if n_engines == 1:
        return (EnginePlace(settings.threads),)
    if not gpus:
        n_threads = settings.threads or max(1, n_usable_cores() // n_engines)
        return (EnginePlace(n_threads),) * n_engines
    if n_engines > len(gpus) and n_engines % len(gpus):
        raise SettingsError(
            f"engines: expected up to {len(gpus)}, one for each visible GPU, or a multiple of {len(gpus)}, which share "
            f"them, got {n_engines}; add --device cpu to run them on the CPU"
        )
    n_each = max(n_engines // len(gpus), 1)
    # The first engines are filled first: each on another GPU.
    return tuple(
        EnginePlace(settings.threads, {VISIBLE_GPUS: gpu}, gpu_share=1 / n_each) for gpu in gpus[:n_engines] * n_each
    )


def visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the GPUs that a process with this environment could use, as `CUDA_VISIBLE_DEVICES` has them.

    Raises:
        SettingsError: torch cannot be loaded.
    """
    # In another process: torch takes seconds and memory, and this process must not open the GPUs.
    counted = subprocess.run(
        [sys.executable, "-c", COUNT_GPUS], capture_output=True, text=True, env=dict(environment), check=False
    )
    if counted.returncode:
        raise SettingsError(f"engines: expected torch to count the GPUs, got: {counted.stderr.strip()[-500:]}")
    n_gpus = int(counted.stdout)
    listed = tuple(name.strip() for name in environment.get(VISIBLE_GPUS, "").split(",") if name.strip())
    if n_gpus and listed and all(name.startswith("MIG-") for name in listed):
        # Parts of GPUs. Torch counts only the first of them, as a process cannot use more.
        return listed
    return (listed or tuple(map(str, range(n_gpus))))[:n_gpus]
