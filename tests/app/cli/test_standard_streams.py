"""Commands run whatever their standard streams are."""

import subprocess
import sys

from tests.app.cli.child import ENVIRONMENT

PROGRAM = "from tutti_server.app.cli.standard_streams import prepare_standard_streams as p; p(); print('1 \u2013 2')"


def test_a_command_needs_no_standard_streams() -> None:
    """A script may close them. Then a socket had the number of the output, and the event loop aborted the process."""
    command = [sys.executable, "-m", "tutti_server.app", "demo", "--url", "ws://127.0.0.1:1"]
    without = ["sh", "-c", 'exec "$@" <&- >&-', "sh", *command]
    done = subprocess.run(without, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ws://127.0.0.1:1: expected a tutti server")


def test_letters_that_the_output_lacks_are_question_marks() -> None:
    """As at `python -m tutti`. A banner or a transcript ended with a traceback there."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout) == (0, b"1 ? 2\n")
