"""examples/livekit_agent and examples/pipecat: frameworks of voice agents hear a call that is played from a file.

The frameworks have many dependencies, so `make agents` installs them in an environment of their own. By day
`tests/compat` runs their own classes.
"""

from pathlib import Path

import pytest

from tests.app.cli.child import running
from tests.compat.agents import agents_python
from tests.compat.conftest import Running
from tests.examples.conftest import EXAMPLES
from tests.recordings import TEXTS

AGENTS = [("livekit_agent/agent.py", ("file",)), ("pipecat/pipeline.py", ())]

pytestmark = [pytest.mark.timeout(300), pytest.mark.nightly]


@pytest.mark.parametrize(("program", "command"), AGENTS)
def test_an_agent_hears_a_turn_until_ctrl_c(
    server: Running, recordings: Path, program: str, command: tuple[str, ...]
) -> None:
    """The caller is silent at the end, so the turn ends because the server says so."""
    recording = (recordings / "speech.wav", "--speed", "4", "--silence", "60")
    with running(EXAMPLES / program, *command, *recording, program=agents_python(), TUTTI_URL=server.http) as agent:
        assert agent.wait_for("turn: ") == f"turn: {TEXTS['hello']}\n"
        agent.interrupt()
        status, errors = agent.end()
    assert status in (0, 130)
    assert "Traceback" not in errors
