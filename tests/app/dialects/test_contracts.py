"""The import contracts name every module of the dialects that must not do I/O."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
CONTRACTS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
NAMES = (
    "Wire formats do no I/O",
    "Wire formats know commands, events and effects of the session, not its insides",
)


SERVING = ("plugin", "routes", "settings")
"""Modules of the plug-in of carriers that translate nothing."""


def pure_modules() -> list[str]:
    """All modules of the dialects and of the carriers, except for those that serve."""
    folders = (REPOSITORY / "app" / "dialects", REPOSITORY / "plugins" / "carriers")
    paths = (path.relative_to(REPOSITORY) for folder in folders for path in folder.rglob("*.py"))
    pure = (path.with_suffix("") for path in paths if path.stem not in ("__init__", *SERVING))
    names = [".".join(("tutti_server", *path.parts)) for path in pure]
    return [name for name in names if not name.endswith("endpoint")]


@pytest.mark.parametrize("name", NAMES)
def test_every_module_but_endpoints_is_under_contract(name: str) -> None:
    (contract,) = (each for each in CONTRACTS if each["name"] == name)
    assert "ignore_imports" not in contract
    missing = [
        module for module in pure_modules() if not any(fnmatch(module, each) for each in contract["source_modules"])
    ]
    assert missing == []
