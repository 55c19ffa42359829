"""The memory of a server: what becomes of a run whose server ends."""

import asyncio
import os

from benchmarks.memory import Load, Stages
from benchmarks.recordings import load_bundled
from benchmarks.server import RunningServer, free_port


def test_a_server_that_has_ended_is_a_failure_of_each_session_and_upload() -> None:
    """And no error of the command, which has a table of what it saw until then."""
    counts = {"n_warm_up": 0, "n_sessions": 1, "n_uploads": 1, "n_overload": 0, "n_after": 0}
    load = Load(**counts, shortest_s=1.0, longest_s=1.0, idle_s=0.0)
    stages = Stages(RunningServer(f"http://127.0.0.1:{free_port()}", os.getpid()), load, load_bundled(2.0, 1))
    asyncio.run(stages.run())
    assert [failure.split(":")[0] for failure in stages.failures] == ["Unreachable", "upload"]
    assert [row["after"] for row in stages.rows][-2:] == ["1 aborted uploads", "idle"]
