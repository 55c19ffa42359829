"""The version, installed or not."""

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from tutti_server.app.version import find_version

CHECKOUT = Path(__file__).parents[2]


def test_a_checkout_that_is_not_installed_has_the_version_of_its_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "not-installed-here"\nversion = "1.2.3"\n')
    assert find_version("not-installed-here", tmp_path) == "1.2.3"


def test_a_folder_of_another_project_is_no_checkout() -> None:
    """The server's folder may lie in the repository of somebody else."""
    with pytest.raises(PackageNotFoundError):
        find_version("not-installed-here", CHECKOUT)
