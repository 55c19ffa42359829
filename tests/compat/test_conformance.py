"""`docs/compatibility.md` says what the marks of the tests say."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.conformance import Claim, approximated, refused, supported
from tests.compat.table import HEAD, page

REPOSITORY = Path(__file__).parents[2]
COMMAND_TIMEOUT_S = 60


@pytest.mark.nightly
def test_the_page_is_up_to_date() -> None:
    """`docs/compatibility.md` matches the marks; `python -m tests.compat.table` writes it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.compat.table", "--check"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    assert done.returncode == 0, f"run `python -m tests.compat.table`\n{done.stdout}{done.stderr}"


def test_each_option_is_named_once() -> None:
    """Under the heading of its dialect, however many tests show it."""
    marks = [
        supported("openai-rest", "file"),
        supported("openai-rest", "file"),
        supported("openai-rest", "model"),
        refused("twilio", "dtmf", how="a warning | in the log"),
        refused("twilio", "mark", how="a warning | in the log"),
        approximated("openai-rest", "prompt", how="the last 224 tokens count"),
    ]
    assert page({mark.args[0] for mark in marks}) == HEAD + (
        "\n## OpenAI REST\n\n"
        "Supported: `file`, `model`.\n\n"
        "| option | | how |\n"
        "|---|---|---|\n"
        "| `prompt` | approximated | the last 224 tokens count |\n"
        "\n## Twilio media streams\n\n"
        "| option | | how |\n"
        "|---|---|---|\n"
        "| `dtmf`, `mark` | refused | a warning \\| in the log |\n"
    )


def test_tests_may_not_contradict_each_other() -> None:
    claims = {Claim("twilio", "mark", "supported"), Claim("twilio", "mark", "refused", "how")}
    with pytest.raises(ValueError, match="different things"):
        page(claims)


def test_a_mark_names_a_dialect_an_option_and_how() -> None:
    with pytest.raises(ValueError, match="expected one of openai-rest, "):
        supported("openai", "file")
    with pytest.raises(ValueError, match="how it is refused"):
        refused("openai-rest", "file", how="")


def test_the_lock_file_names_no_registry() -> None:
    """The lock file has versions and hashes, and no addresses of packages, so any registry can be used."""
    assert '"resolved"' not in (Path(__file__).parent / "js" / "package-lock.json").read_text()
