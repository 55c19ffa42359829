"""Describes the machine and the software versions, and measures processes. Without /proc such figures are `None`."""

import os
import platform
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    *("tutti-asr", "torch", "triton", "flashinfer-python", "transformers", "faster-whisper", "ctranslate2"),
    *("websockets", "uvloop", "numpy"),
)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def describe() -> dict[str, Any]:
    """The time, the command, the revision, the machine and the package versions of a benchmark run."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python -m {_module()} {shlex.join(sys.argv[1:])}".rstrip(),
        "revision": _revision(),
        "machine": {
            "cpu": _field("/proc/cpuinfo", "model name"),
            "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "system": platform.platform(),
            "load_before": round(os.getloadavg()[0], 2),
        },
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
    }


def rss_mib(pid: int) -> float | None:
    """The resident memory of a process at this moment, in MiB, or `None` if that is not known."""
    rss = _field(f"/proc/{pid}/status", "VmRSS")
    return int(rss.split()[0]) / 1024 if rss else None


def family_cpu_s(pid: int) -> float | None:
    """CPU seconds that a process and all its descendants have used so far, or `None` if that is not known.

    A process that has ended counts once its parent has waited for it. Workers that decode files are replaced at times.
    """
    used_s = []
    for each in family(pid):
        # The process may have ended meanwhile.
        with suppress(OSError):
            # The name, in parentheses, may hold spaces; fields 14 to 17 are its times and its children's.
            ticks = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:15]
            used_s.append(sum(map(int, ticks)) / _TICKS_PER_S)
    return sum(used_s) if used_s else None


def family_memory_mib(pid: int) -> float | None:
    """The memory of a process and its living descendants, in MiB, or `None` if that is not known.

    What they share counts once. Of the files that they have mapped, such as libraries, those of the process with the
    most count.
    """
    own_kib, files_kib = 0, [0]
    for each in family(pid):
        try:
            # PSS of files depends on the other programs that run on the machine.
            parts = [_field(f"/proc/{each}/smaps_rollup", name) for name in ("Pss_Anon", "Pss_Shmem")]
            files = _field(f"/proc/{each}/status", "RssFile")
        except OSError:
            # The process ended meanwhile, or another user owns it.
            continue
        own_kib += sum(int(part.split()[0]) for part in parts if part)
        files_kib.append(int(files.split()[0]) if files else 0)
    return (own_kib + max(files_kib)) / 1024 if own_kib else None


def children(pid: int) -> list[int]:
    """The living children of a process, in the order of their ids."""
    return sorted(child for child, parent in _parents().items() if parent == pid)


def command(pid: int) -> str:
    """The command of a process, its arguments separated by zeros. Empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def send(pids: Sequence[int], sent: signal.Signals) -> None:
    """Send a signal to processes that may have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, sent)


def _parents() -> dict[int, int]:
    """The parent of each process. Without /proc there are none."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # The process may have ended meanwhile.
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return parents


def family(pid: int) -> list[int]:
    """A process and its living descendants. Without /proc, the process alone."""
    parents = _parents()
    waiting, found = [pid], list[int]()
    while waiting:
        found.append(waiting.pop())
        waiting += [child for child, parent in parents.items() if parent == found[-1]]
    return found


def busy_s() -> float | None:
    """CPU seconds that all processes of the machine have used so far, or `None` without /proc.

    The difference to the benchmark's own processes shows whether other processes disturbed a measurement.
    """
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, stat.read_text().splitlines()[0].split()[1:])
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


def _field(path: str, name: str) -> str | None:
    if not Path(path).exists():
        return None
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), None)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _revision() -> str | None:
    here = Path(__file__).parent
    try:
        ran = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return ran.stdout.strip()


def _module() -> str:
    """What stands after `python -m`: a package is started by its name, without `__main__`."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).name
