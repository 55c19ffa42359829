"""A Redis of its own for the tests that need one: Debian's `redis-server`, on a Unix socket."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STOP_TIMEOUT_S = 20
PATIENCE_S = 20.0
LIMITS = ("sharing.redis_store.CALL_S", "sharing.waiting.READ_WITHIN_S")
"""What the service waits for Redis."""


class RedisServer:
    """A server without persistence: what it knows is gone when it is killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """The address of the server, whether it runs or not."""
        return f"unix://{self._folder}/redis.sock"

    def start(self) -> None:
        """Start the server, and return when it accepts connections."""
        options = {"port": "0", "unixsocket": f"{self._folder}/redis.sock", "dir": f"{self._folder}", "save": ""}
        self._process = subprocess.Popen(
            ["redis-server", *(part for name, value in options.items() for part in (f"--{name}", value))],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        for line in self._process.stdout:
            if "ready to accept connections" in line.lower():
                return
        pytest.fail("redis-server has ended at its start")

    def kill(self) -> None:
        """Kill the server. A second call has no effect."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=STOP_TIMEOUT_S)
            self._process = None


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    """Run a server while the context is open.

    A call to it may take `PATIENCE_S`, as it may on a busy machine; the service's own limits are shorter.

    Skips the test without `redis-server`; fails it where `TUTTI_REQUIRE_REDIS=1` says that it must be there.
    """
    if shutil.which("redis-server") is None:
        problem = "redis-server is not installed: apt-get install redis-server"
        if os.environ.get("TUTTI_REQUIRE_REDIS") == "1":
            pytest.fail(problem)
        pytest.skip(problem)
    # Not pytest's folder, whose path may be too long for a socket.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="tutti-redis-") as folder:
        for limit in LIMITS:
            patch.setattr(f"tutti_server.app.{limit}", PATIENCE_S)
        server = RedisServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()
