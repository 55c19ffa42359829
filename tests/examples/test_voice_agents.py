"""examples/livekit_agent and examples/pipecat: frameworks of voice agents hear a call that is played from a file.

The frameworks have many dependencies, so `make agents` installs them in an environment of their own. By day
`tests/compat` runs their own classes.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.app.cli.child import running
from tests.compat.conftest import Running
from tests.examples.conftest import EXAMPLES
from tests.recordings import TEXTS

OWN_PYTHON = EXAMPLES.parent / ".venv" / "agents" / "bin" / "python"
AGENTS = [("livekit_agent/agent.py", ("file",), "livekit"), ("pipecat/pipeline.py", (), "pipecat")]

pytestmark = [pytest.mark.timeout(300), pytest.mark.nightly]


@pytest.fixture
def python(package: str) -> Path:
    """The Python that has the framework; the test is skipped without one, and fails where one is required."""
    if find_spec(package) is not None:
        return Path(sys.executable)
    if not OWN_PYTHON.exists():
        problem = f"{package} is not installed: run `make agents`"
        if os.environ.get("TUTTI_REQUIRE_AGENTS") == "1":
            pytest.fail(problem)
        pytest.skip(problem)
    return OWN_PYTHON


@pytest.mark.parametrize(("program", "command", "package"), AGENTS, ids=[package for *_, package in AGENTS])
def test_an_agent_hears_a_turn_until_ctrl_c(
    server: Running, recordings: Path, python: Path, program: str, command: tuple[str, ...]
) -> None:
    """The caller is silent at the end, so the turn ends because the server says so."""
    recording = (recordings / "speech.wav", "--speed", "4", "--silence", "60")
    with running(EXAMPLES / program, *command, *recording, program=python, TUTTI_URL=server.ws) as agent:
        assert agent.wait_for("turn: ") == f"turn: {TEXTS['hello']}\n"
        agent.interrupt()
        status, errors = agent.end()
    assert status in (0, 130)
    assert "Traceback" not in errors
