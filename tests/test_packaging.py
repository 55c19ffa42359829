"""The wheels that users install: what they contain, and that they need nothing that is not on the package index."""

import os
import subprocess
import sys
import sysconfig
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.wheels import BUILD_TIMEOUT_S, shared_wheels
from tutti_server.engine.checkpoint.catalog import EMBEDDED_MODEL


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of the server and of the client, by distribution name."""
    return shared_wheels(tmp_path_factory)


def install(wheel: Path, target: Path) -> None:
    arguments = ("--quiet", "--no-deps", "--no-index", "--no-compile", "--target", target, wheel)
    subprocess.run([sys.executable, "-m", "pip", "install", *arguments], check=True, timeout=BUILD_TIMEOUT_S)


def python(installed: Path, *arguments: str) -> str:
    """Standard output of an interpreter that knows what is installed here, the dependencies, and no checkout."""
    # `-S` leaves out what editable installations add.
    done = subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=installed,
        env=os.environ | {"PYTHONPATH": f"{installed}{os.pathsep}{sysconfig.get_path('purelib')}"},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def requirements(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist", [])


def test_no_wheel_needs_the_other(wheels: dict[str, Path]) -> None:
    """Neither is on the package index when a checkout is installed."""
    assert set(wheels) == {"tutti_asr", "tutti_asr_client"}
    for wheel in wheels.values():
        assert not [each for each in requirements(wheel) if each.startswith("tutti")]


def test_torch_has_an_upper_bound(wheels: dict[str, Path]) -> None:
    """A release of torch that was never tested is not installed."""
    (torch,) = (each for each in requirements(wheels["tutti_asr"]) if each.startswith("torch"))
    assert "<" in torch


def test_the_servers_wheel_alone_has_the_command_and_the_client(wheels: dict[str, Path], tmp_path: Path) -> None:
    """`tutti --version` runs, and `import tutti` works, without the checkout."""
    install(wheels["tutti_asr"], tmp_path)
    out = python(tmp_path, "-c", "import tutti, app; print(tutti.__file__); print(app.__file__)")
    assert [Path(line).parents[1] for line in out.split()] == [tmp_path, tmp_path]
    assert python(tmp_path, "-m", "tutti_server.app", "--version").startswith("tutti, version ")
    for part in (
        "app/assets/sample.flac",
        "app/static/index.html",
        "app/database/migrations/env.py",
        "app/database/migrations/versions/v0001_first_release.py",
        f"engine/assets/{EMBEDDED_MODEL}/ggml-model.bin",
    ):
        assert (tmp_path / part).exists(), part
    show = "from tutti_server.app.server.plugins import installed_plugins; print(*(each.name for each in installed_plugins()))"
    assert python(tmp_path, "-c", show).split() == ["carriers", "telemetry"]


def test_the_clients_wheel_is_the_same_client(wheels: dict[str, Path]) -> None:
    """Installing both leaves one client, whichever was installed last."""
    contents = []
    for wheel in wheels.values():
        with ZipFile(wheel) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist() if name.startswith("tutti/")})
    assert contents[0] == contents[1]
    assert "tutti/py.typed" in contents[0]
