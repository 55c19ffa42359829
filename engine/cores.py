"""How many cores a process may use: by its affinity, and by the CPU quota of its container.

A container that may use 2 of 64 cores runs on all of them, and is stopped for the rest of each period of a tenth of a
second when it has used its time. More threads than that only wait for each other.
"""

import math
import os
import sys
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def n_usable_cores(cgroups: Path = CGROUPS, own_cgroup: Path = OWN_CGROUP) -> int:
    """Return how many cores this process may use, as far as the system says."""
    n_cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = cpu_quota(cgroups, own_cgroup)
    return n_cores if math.isinf(quota) else max(min(n_cores, math.ceil(quota)), 1)


def cpu_quota(cgroups: Path, own_cgroup: Path) -> float:
    """Return the least CPU quota of this process's cgroup (version 2) and of those around it, in cores.

    Args:
        cgroups: where cgroups are mounted. In a container, that is usually its own one.
        own_cgroup: names the cgroup of the process.

    Returns:
        `inf` where there is none, or where it cannot be read.
    """
    try:
        lines = own_cgroup.read_text(encoding="utf-8").splitlines()
    except OSError:
        return math.inf
    name = next((line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")), "")
    # The path may be that of the host, while a container mounts its own cgroup alone.
    folders = [cgroups / name, *(cgroups / name).parents]
    return min((_quota(folder / "cpu.max") for folder in folders if folder.is_relative_to(cgroups)), default=math.inf)


def _quota(file: Path) -> float:
    """Return the quota in a file such as `200000 100000`, which are microseconds; `max` is no quota."""
    try:
        used_us, period_us = file.read_text(encoding="utf-8").split()
        return math.inf if used_us == "max" else int(used_us) / int(period_us)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
