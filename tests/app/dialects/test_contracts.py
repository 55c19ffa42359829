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


def pure_modules() -> list[str]:
    """All modules of the dialects, except for endpoints."""
    paths = (path.relative_to(REPOSITORY) for path in (REPOSITORY / "app" / "dialects").rglob("*.py"))
    names = [".".join(path.with_suffix("").parts) for path in paths if path.stem != "__init__"]
    return [name for name in names if not name.endswith("endpoint")]


@pytest.mark.parametrize("name", NAMES)
def test_every_module_but_endpoints_is_under_contract(name: str) -> None:
    (contract,) = (each for each in CONTRACTS if each["name"] == name)
    assert "ignore_imports" not in contract
    missing = [
        module for module in pure_modules() if not any(fnmatch(module, each) for each in contract["source_modules"])
    ]
    assert missing == []
