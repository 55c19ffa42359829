"""The wheels that users install: what they own and need, and that each works without the other."""

import json
import os
import subprocess
import tomllib
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.wheels import BUILD_TIMEOUT_S, REPOSITORY, make_environment, shared_wheels
from tutti_server.engine.checkpoint.catalog import EMBEDDED_MODEL

SERVER, CLIENT = "tutti_asr", "tutti_asr_client"
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of the server and of the client, by distribution name."""
    return shared_wheels(tmp_path_factory)


@pytest.fixture(scope="module")
def environment(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment in which `pip install` got the wheel of the server. No test changes it."""
    environment = tmp_path_factory.mktemp("installed")
    # pip finds the client, which the server needs, and whether the versions of all other packages are in their ranges.
    make_environment(environment, wheels[SERVER])
    return environment


def run(environment: Path, program: str, *arguments: str, folder: Path | None = None, path: str = "") -> str:
    """Standard output of a program of the environment, by default in its own folder, so that no checkout is seen."""
    done = subprocess.run(
        [environment / "bin" / program, *arguments],
        cwd=folder or environment,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def names(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        return archive.namelist()


def requirements(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist", [])


def test_each_wheel_owns_one_import_name(wheels: dict[str, Path]) -> None:
    """So no file belongs to both, and a user's own package `app` is nobody else's."""
    assert set(wheels) == {SERVER, CLIENT}
    owned = {
        name: {each.partition("/")[0] for each in names(wheel) if ".dist-info/" not in each}
        for name, wheel in wheels.items()
    }
    assert owned == {SERVER: {"tutti_server"}, CLIENT: {"tutti"}}
    assert "tutti/py.typed" in names(wheels[CLIENT])


def test_the_server_needs_the_client_of_its_own_version(wheels: dict[str, Path]) -> None:
    """All parts of a release have one version, and the client needs no server."""
    version = json.loads((REPOSITORY / "clients/js/package.json").read_text())["version"]
    assert {path.name.split("-")[1] for path in wheels.values()} == {version, VERSION}
    assert [each for each in requirements(wheels[SERVER]) if each.startswith("tutti")] == [
        f"tutti-asr-client=={version}"
    ]
    assert [each for each in requirements(wheels[CLIENT]) if each.startswith("tutti")] == []


def test_the_servers_wheel_is_small_but_for_its_weights(wheels: dict[str, Path]) -> None:
    """The model that works offline is most of it: a package index takes 100 MB, and PyTorch for CPUs alone has 200."""
    with ZipFile(wheels[SERVER]) as archive:
        sizes = {each.filename: each.compress_size for each in archive.infolist()}
    weights = sizes.pop(f"tutti_server/engine/assets/{EMBEDDED_MODEL}/ggml-model.bin")
    assert weights < 40_000_000
    assert sum(sizes.values()) < 6_000_000


def test_the_servers_wheel_has_all_that_it_opens(wheels: dict[str, Path]) -> None:
    parts = {
        "tutti_server/app/assets/sample.flac",
        "tutti_server/app/static/index.html",
        "tutti_server/app/static/tutti/index.js",
        "tutti_server/plugins/accounts/database/migrations/env.py",
        "tutti_server/plugins/accounts/database/migrations/versions/v0001_first_release.py",
        f"tutti_server/engine/assets/{EMBEDDED_MODEL}/ggml-model.bin",
        "tutti_server/engine/cuda/kernels/row_step.cu",
    }
    assert parts - set(names(wheels[SERVER])) == set()


@pytest.mark.nightly
def test_the_installed_server_finds_its_plugins(environment: Path) -> None:
    show = (
        "from tutti_server.app.server.plugins import installed_plugins; "
        "print(*(each.name for each in installed_plugins()))"
    )
    assert run(environment, "python", "-c", show).split() == ["accounts", "carriers", "telemetry", "wyoming"]


@pytest.mark.nightly
def test_users_own_packages_of_common_names_are_not_imported(environment: Path, tmp_path: Path) -> None:
    """They are in the working directory and on the path."""
    for name in ("app", "cluster", "engine", "plugins"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the package of a user')\n")
    version = run(environment, "tutti", "--version", folder=tmp_path, path=str(tmp_path))
    assert version == f"tutti, version {VERSION}\n"
    assert version == run(environment, "python", "-m", "tutti_server.app", "--version", folder=tmp_path)
    assert "--max-sessions" in run(environment, "tutti", "serve", "--help", folder=tmp_path, path=str(tmp_path))
