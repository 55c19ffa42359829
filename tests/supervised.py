"""A service of several processes with the small model, as clients see it, and its processes."""

import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import trustme

import tutti
from benchmarks.server_counters import Counters
from tests.app.cli.child import ENVIRONMENT

PATIENCE_S = 100.0
"""The time limit of each test, in seconds: loading the model takes some of it."""
OPTIONS = {
    "port": 0,
    "max-ahead-s": 600,
    "final-deadline-s": 90,
    # However slow this machine is, it accepts sessions.
    "max-final-wait-s": 1000,
}


@dataclass
class Supervisor:
    """A running supervisor, its engine processes and its gateway processes."""

    process: subprocess.Popen[str]
    address: str
    log: Path
    tls: ssl.SSLContext
    is_stopping: bool = False

    def stop(self) -> None:
        """Start a drain. A second signal would end it, so only one is sent."""
        if not self.is_stopping:
            self.process.send_signal(signal.SIGTERM)
        self.is_stopping = True

    def connect(self, **options: Any) -> AbstractAsyncContextManager[tutti.Session]:
        # Without resuming, so that the tests see each loss.
        return tutti.connect(f"wss://{self.address}", ssl=self.tls, language="en", resume_buffer_s=0, **options)

    def http(self) -> httpx.AsyncClient:
        """A client with connections of its own, which may reach any gateway."""
        return httpx.AsyncClient(base_url=f"https://{self.address}", verify=self.tls, timeout=PATIENCE_S)

    async def counters(self) -> Counters:
        async with self.http() as client:
            return Counters.parse((await client.get("/metrics")).text)

    def children(self) -> list[int]:
        """The child processes, the oldest first."""
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def _is_gateway(self, pid: int) -> bool:
        command = Path(f"/proc/{pid}/cmdline").read_text()
        return "resource_tracker" not in command and not self.has_torch(pid)

    def with_torch(self) -> list[int]:
        """The child processes that have loaded torch, the oldest first."""
        return [pid for pid in self.children() if self.has_torch(pid)]

    def has_torch(self, pid: int) -> bool:
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()

    def gateways(self) -> list[int]:
        """The child processes that are neither engines nor Python's resource tracker."""
        return [pid for pid in self.children() if self._is_gateway(pid)]

    def gateway_of(self, session: tutti.Session) -> str:
        """The name of the gateway that serves a session, from the log."""
        opened = rf"INFO (gateway-\d) tutti_server.app.live.connection: \[{session.started.session_id}\] opened"
        (gateway,) = re.findall(opened, self.log.read_text())
        return str(gateway)


@contextmanager
def supervised(folder: Path, **options: object) -> Iterator[Supervisor]:
    """A service with TLS. After a drain it must exit by itself, and leave no files or shared memory."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
    tls = ssl.create_default_context()
    authority.configure_trust(tls)
    log = folder / "log"
    files = ["--tls-cert", str(folder / "both.pem"), "--tls-key", str(folder / "both.pem")]
    values = [f"--{name.replace('_', '-')}={value}" for name, value in (OPTIONS | options).items()]
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tutti_server.app", "serve", *files, *values],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=ENVIRONMENT | {"TMPDIR": str(folder)},
        )
    try:
        assert process.stdout
        banner = [process.stdout.readline() for _ in range(6)]
        address = next(line.split("//")[1].strip().rstrip("/") for line in banner if "captions" in line)
        supervisor = Supervisor(process, address, log, tls)
        yield supervisor
        supervisor.stop()
        process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert "Traceback" not in log.read_text()
    assert "resource_tracker" not in log.read_text()
    assert [path.name for path in Path("/dev/shm").glob(f"tutti-{process.pid}-*")] == []
    assert list(folder.glob("tutti-*")) == []


async def listen(supervisor: Supervisor, audio: bytes, **options: Any) -> list[tutti.Event]:
    """The events of one session with this audio."""
    async with supervisor.connect(**options) as session:
        await session.send(audio)
        await session.stop()
        return [event async for event in session]


def text(events: list[tutti.Event], channel: int = 0) -> str:
    """The final text of a channel."""
    return " ".join(e.text for e in events if isinstance(e, tutti.Utterance) and e.channel == channel and e.text)
