"""Every command of the documentation is known to the tests that run them."""

import re
from pathlib import Path

from tests.first_hour.commands import COMMANDS, LEFT_OUT, PAGES, SERVERS

REPOSITORY = Path(__file__).parents[2]


def test_every_command_of_the_documentation_is_known() -> None:
    """A new one is added to the tables, so that it is run."""
    text = "".join((REPOSITORY / page).read_text() for page in PAGES)
    found = {re.sub(r"\s+#.*", "", line) for line in re.findall(r"^    ((?:\.venv/bin/|curl ).*)$", text, re.MULTILINE)}
    assert found == {*COMMANDS, *SERVERS, *LEFT_OUT}
