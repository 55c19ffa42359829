"""The wheels of the distributions, made as a release makes them."""

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
BUILD_TIMEOUT_S = 120
PARTS = (
    "app",
    "cluster",
    "engine",
    "plugins",
    "tutti_server",
    "clients/python",
    "clients/js/page_client.py",
    "clients/js/src",
    "pyproject.toml",
    "deploy/release/README.md",
    "LICENSE",
)
SETUPTOOLS = 77
"""The oldest major version that builds the wheels: `build-system` in `pyproject.toml`."""


def shared_wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of the server and of the client, by distribution name."""
    folder = made_once(tmp_path_factory, "wheels", _build_wheels)
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


def made_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that is made once for all processes of a test run. `make` gets it while it is empty."""
    own = tmp_path_factory.getbasetemp()
    run = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder = run / name
    with (run / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (run / f"{name}.done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            (run / f"{name}.done").touch()
    return folder


def make_environment(environment: Path, *wheels: Path) -> None:
    """Make a virtual environment with these wheels and what they need: nothing of the checkout, and no package index.

    The packages of the present environment are at hand there, but for ours: pip takes those from beside the wheels.
    """
    venv.create(environment, symlinks=True)
    dependencies = environment / "dependencies"
    dependencies.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("tutti", "__editable__")) and entry.suffix != ".pth":
            (dependencies / entry.name).symlink_to(entry)
    packages = environment / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    pip(environment, "install", "--no-index", "--no-compile", "--find-links", wheels[0].parent, *wheels)


def pip(environment: Path, command: str, *arguments: str | Path) -> None:
    """Run the present pip for another environment."""
    python = environment / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, command, "--quiet", *arguments],
        # What a checkout on this path says of itself is not installed there.
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        check=True,
        timeout=BUILD_TIMEOUT_S,
    )


def _build_wheels(folder: Path) -> None:
    """Make the wheels of the server and of the client in a folder from copies of their sources."""
    source = folder / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "-z", *PARTS], cwd=REPOSITORY, capture_output=True, check=True
    ).stdout.decode()
    for name in filter(None, tracked.split("\0")):
        if (REPOSITORY / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, source / name, follow_symlinks=False)
    # With the setuptools that is installed, so that no package index is needed, unless it is too old.
    has_setuptools = int(version("setuptools").partition(".")[0]) >= SETUPTOOLS
    options = ("--no-build-isolation",) if has_setuptools else ()
    for project in (source, source / "clients" / "python"):
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *options, "--wheel-dir", folder, project],
            check=True,
            timeout=BUILD_TIMEOUT_S,
        )
