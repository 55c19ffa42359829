"""What `make serve` and `make setup` ask for, in an environment whose programs only note how they were called."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
CPU_INDEX = "--index-url https://download.pytorch.org/whl/cpu"
PROGRAM = """#!/bin/sh
echo "${0##*/} $*" >>"$CALLS"
case "$*" in *"$REFUSED"*) exit 1 ;; esac
"""
"""Notes its name and its arguments. Fails where its arguments contain the text of the variable REFUSED."""

pytestmark = [
    pytest.mark.skipif(not shutil.which("make"), reason="needs make"),
    pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="needs a machine without an NVIDIA GPU"),
]


def programs(folder: Path, *names: str) -> Path:
    """Write a program of each name into a new folder."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(PROGRAM)
        (folder / name).chmod(0o755)
    return folder


def make(folder: Path, target: str, *, refused: str = "no such text", path: str = "") -> tuple[list[str], str]:
    """Run a target. Returns the calls of the environment's programs, without a few options, and the output."""
    environment, calls = folder / "venv", folder / "calls"
    if not environment.exists():
        programs(environment / "bin", "python", "uv", "tutti")
    calls.write_text("")
    done = subprocess.run(
        ["make", "--no-print-directory", f"VENV={environment}", f"PAGE_CLIENT={folder}/index.js", target],
        cwd=REPOSITORY,
        # Without what a make above this one has to say to its own: `make rest` runs these tests.
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        | {"CALLS": str(calls), "REFUSED": refused, "PATH": path + os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    lines = calls.read_text().splitlines()
    for words in ("--quiet ", "--disable-pip-version-check ", "--no-compile ", f"--python {environment}/bin/python "):
        lines = [line.replace(words, "") for line in lines]
    return [line.replace("-m pip ", "").replace("python install", "pip install") for line in lines], done.stdout


def makefile_value(name: str) -> str:
    lines = (REPOSITORY / "Makefile").read_text().splitlines()
    return next(line.partition("= ")[2] for line in lines if line.split(" ")[0] == name)


def test_the_server_is_installed_without_the_workshop(tmp_path: Path) -> None:
    """PyTorch, the installer, and what the two distributions require, in locked versions: no extra, no whole lock."""
    calls, output = make(tmp_path, "serve")
    assert calls == [
        f"pip install --no-deps --retries 1 --timeout 15 {CPU_INDEX} {makefile_value('TORCH')}",
        f"pip install {makefile_value('UV_VERSION')}",
        "uv pip install --constraint constraints.lock tree-sitter tree-sitter-typescript -e clients/python -e .",
        "python -c import tutti_server.app.cli.commands, tutti_server.engine.engine",
        "python clients/js/page_client.py",
        "tutti serve",
    ]
    assert output.startswith("Installing torch")
    (tmp_path / "index.js").touch()
    assert make(tmp_path, "serve")[0] == ["tutti serve"]


def test_a_setup_adds_the_rest_and_the_server_needs_nothing_more(tmp_path: Path) -> None:
    make(tmp_path, "serve")
    calls, _ = make(tmp_path, "setup")
    assert calls[:2] == [
        "uv pip install --require-hashes --no-deps --requirement constraints.lock",
        "uv pip install --constraint constraints.txt -e clients/python -e .[dev]",
    ]
    (tmp_path / "index.js").touch()
    assert make(tmp_path, "demo")[0] == ["tutti demo"]


def test_the_pages_client_is_built_again_after_a_change(tmp_path: Path) -> None:
    make(tmp_path, "serve")
    (tmp_path / "index.js").touch()
    os.utime(tmp_path / "index.js", (0, 0))
    assert make(tmp_path, "serve")[0] == ["python clients/js/page_client.py", "tutti serve"]


def test_pytorch_comes_from_the_package_index_where_a_gpu_is_seen(tmp_path: Path) -> None:
    calls, output = make(tmp_path, "serve", path=f"{programs(tmp_path / 'driver', 'nvidia-smi')}:")
    assert calls[:2] == ["nvidia-smi --list-gpus", f"pip install {makefile_value('TORCH')}"]
    assert "with CUDA, as there is an NVIDIA GPU" in output


def test_pytorch_comes_from_the_package_index_where_its_own_cannot_be_reached(tmp_path: Path) -> None:
    """The output says so, and that the download may be large."""
    calls, output = make(tmp_path, "serve", refused=CPU_INDEX)
    assert calls[1] == f"pip install {makefile_value('TORCH')}"
    assert "does not give it; installing it from the package index, maybe with gigabytes of CUDA" in output
