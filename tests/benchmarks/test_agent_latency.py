"""The benchmark of agents runs with Pipecat's own classes, in the environment of `make agents`."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.cli.child import ENVIRONMENT
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.compat.agents import agents_python
from tests.compat.conftest import Host
from tests.engine.engines import read_clip

ROOT = Path(__file__).parents[2]
PROGRAM_TIMEOUT_S = 100

pytestmark = pytest.mark.timeout(2 * PROGRAM_TIMEOUT_S)


@pytest.fixture
def url() -> Iterator[str]:
    """A server with the small model that needs no key."""
    host = Host()
    running, stack = host.start()
    yield running.ws
    host.stop(stack)
    host.close()


def measure(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [program, "-m", "benchmarks.agent_latency", *map(str, arguments)]
    environment = ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=PROGRAM_TIMEOUT_S
    )


@pytest.mark.parametrize("service", ["deepgram", "openai"])
def test_each_utterance_of_each_call_is_measured(url: str, service: str, tmp_path: Path) -> None:
    """It prints a row: service, calls, times, final texts, and three seconds that do not fall."""
    recording = tmp_path / "hello.wav"
    recording.write_bytes(wav(read_clip("hello")))
    done = measure(agents_python(), recording, "--url", url, "--service", service, "--calls", "2")
    row = re.fullmatch(rf"\| {service} \| 2 \| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|\n", done.stdout)
    assert done.returncode == 0 and row, done.stdout + done.stderr
    n_times, n_finals = int(row[1]), int(row[2])
    assert n_times >= 2 and n_finals >= 2
    assert 0 < float(row[3]) <= float(row[4]) <= float(row[5])
