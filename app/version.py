"""The version of the server. One place, so that the command line and the protocols say the same."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

DISTRIBUTION = "tutti-asr"


def find_version(distribution: str, checkout: Path) -> str:
    """Return the version of an installed distribution, or where it is not installed that of the checkout.

    Raises:
        PackageNotFoundError: there is neither.
    """
    try:
        return version(distribution)
    except PackageNotFoundError:
        file = checkout / "pyproject.toml"
        if not file.is_file():
            raise
        project = tomllib.loads(file.read_text())["project"]
        if project["name"] != distribution:
            raise
        return str(project["version"])


VERSION = find_version(DISTRIBUTION, Path(__file__).parents[2])
