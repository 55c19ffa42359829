"""`tutti serve --gateways 2`: real processes with the embedded model, as clients see them."""

import asyncio
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

import tutti
from benchmarks.server_counters import Counters
from tests.recordings import AUDIO, TEXTS, read

PATIENCE_S = 100.0
"""The time limit of each test, in seconds: loading the model takes some of it."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")} | {"COLUMNS": "120"}
MAX_SESSIONS = 12


@dataclass
class Supervisor:
    """A running supervisor, its engine process and its gateway processes."""

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

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def _is_gateway(self, pid: int) -> bool:
        command = Path(f"/proc/{pid}/cmdline").read_text()
        return "resource_tracker" not in command and not self.has_torch(pid)

    def with_torch(self) -> list[int]:
        """The child processes that have loaded torch."""
        return [pid for pid in self.children() if self.has_torch(pid)]

    def has_torch(self, pid: int) -> bool:
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()

    def gateways(self) -> list[int]:
        """The child processes that are neither the engine nor Python's resource tracker."""
        return [pid for pid in self.children() if self._is_gateway(pid)]

    def gateway_of(self, session: tutti.Session) -> str:
        """The name of the gateway that serves a session, from the log."""
        opened = rf"INFO (gateway-\d) app.live.connection: \[{session.started.session_id}\] opened"
        (gateway,) = re.findall(opened, self.log.read_text())
        return str(gateway)


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """A service with TLS. After a drain it must exit by itself, and leave no files or shared memory."""
    folder = tmp_path_factory.mktemp("gateways")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
    tls = ssl.create_default_context()
    authority.configure_trust(tls)
    log = folder / "log"
    options = {"gateways": 2, "port": 0, "max-sessions": MAX_SESSIONS, "max-ahead-s": 600, "final-deadline-s": 90}
    # The number of sessions is the only limit, however slow this machine is.
    options["max-final-wait-s"] = 1000
    files = ["--tls-cert", str(folder / "both.pem"), "--tls-key", str(folder / "both.pem")]
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "app", "serve", *files, *(f"--{name}={value}" for name, value in options.items())],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=ENVIRONMENT | {"TMPDIR": str(folder)},
        )
    try:
        assert process.stdout
        banner = [process.stdout.readline() for _ in range(5)]
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


@pytest.fixture(autouse=True)
async def patience() -> AsyncIterator[None]:
    async with asyncio.timeout(PATIENCE_S):
        yield


async def listen(supervisor: Supervisor, audio: bytes, **options: Any) -> list[tutti.Event]:
    async with supervisor.connect(**options) as session:
        await session.send(audio)
        await session.stop()
        return [event async for event in session]


def text(events: list[tutti.Event]) -> str:
    return " ".join(event.text for event in events if isinstance(event, tutti.Utterance) and event.text)


async def one_at_each(supervisor: Supervisor, stack: AsyncExitStack) -> list[tutti.Session]:
    """Open sessions until both gateways have one. Returns one session of each."""
    sessions: dict[str, tutti.Session] = {}
    while len(sessions) < 2:
        session = await stack.enter_async_context(supervisor.connect())
        sessions[supervisor.gateway_of(session)] = session
    return [sessions[name] for name in sorted(sessions)]


async def test_every_gateway_gives_the_same_text_as_one_process(supervisor: Supervisor) -> None:
    """For live sessions at both gateways, and for a file."""
    async with AsyncExitStack() as stack:
        for session in await one_at_each(supervisor, stack):
            await session.send(read("train").tobytes())
            await session.stop()
            assert text([event async for event in session]) == TEXTS["train"]
    async with supervisor.http() as client:
        files = {"file": ("train.flac", (AUDIO / "train.flac").read_bytes())}
        answer = await client.post("/v1/audio/transcriptions", files=files, data={"language": "en"})
    assert answer.json()["text"] == TEXTS["train"]


def test_only_the_engines_process_has_torch(supervisor: Supervisor) -> None:
    """The supervisor and the gateways stay small."""
    assert len(supervisor.with_torch()) == 1
    assert len(supervisor.gateways()) == 2
    assert not supervisor.has_torch(supervisor.process.pid)


async def test_metrics_are_those_of_the_whole_service(supervisor: Supervisor) -> None:
    """Each gateway's page counts the sessions of both gateways, and has the engine's figures."""

    async def counters() -> Counters:
        async with supervisor.http() as client:
            return Counters.parse((await client.get("/metrics")).text)

    before = await counters()
    async with AsyncExitStack() as stack:
        sessions = await one_at_each(supervisor, stack)
        during = [await counters() for _ in range(8)]
        n_open = {each.value("tutti_sessions_open") for each in during}
        assert len(n_open) == 1 and n_open.pop() >= 2
        grown = during[0] - before
        assert grown.value("tutti_sessions_total") == during[0].value("tutti_sessions_open")
        for session in sessions:
            await session.send(read("train").tobytes())
            await session.stop()
            assert text([event async for event in session]) == TEXTS["train"]
    for _ in range(8):  # enough to reach both gateways, which receive the engine's counters one period later
        while (await counters() - before).value("tutti_engine_windows_total", how="done") < len(sessions):
            pass


async def test_limits_count_the_sessions_of_all(supervisor: Supervisor) -> None:
    """Exactly `MAX_SESSIONS` sessions are accepted, on any gateway."""
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(supervisor.connect()) for _ in range(MAX_SESSIONS)]
        assert len({supervisor.gateway_of(session) for session in sessions}) == 2
        for _ in range(3):
            with pytest.raises(tutti.TuttiError, match="no room"):
                await stack.enter_async_context(supervisor.connect())


async def test_sessions_outlive_the_engine(supervisor: Supervisor) -> None:
    """The engine is killed during speech: the session continues, each utterance ends once, the text is the same."""
    audio = read("call")
    alone = await listen(supervisor, audio.tobytes())
    half = len(audio) // 2
    async with supervisor.connect() as session:
        received: list[tutti.Event] = []
        await session.send(audio[:half].tobytes())
        async for event in session:
            received.append(event)
            if isinstance(event, tutti.Interim):
                break
        (engine,) = supervisor.with_torch()
        os.kill(engine, signal.SIGKILL)
        async with supervisor.http() as client:
            while (await client.get("/readyz")).status_code != 503:
                pass
        await session.send(audio[half:].tobytes())
        await session.stop()
        received += [event async for event in session]
    assert text(received) == text(alone)
    begun = [event.utterance for event in received if isinstance(event, tutti.SpeechStarted)]
    ended = [event.utterance for event in received if isinstance(event, tutti.Utterance)]
    assert begun == ended and len(set(ended)) == len(ended)
    assert not [event for event in received if isinstance(event, tutti.ErrorEvent)]
    assert "supervisor cluster.local.supervisor: engine" in supervisor.log.read_text()


async def test_a_gateway_that_dies_is_replaced(supervisor: Supervisor) -> None:
    """Its clients are disconnected and may reconnect; clients of the other gateway are not affected."""

    async def transcribe(session: tutti.Session) -> str:
        try:
            await session.send(read("train").tobytes())
            await session.stop()
            return text([event async for event in session])
        except tutti.ConnectionLost:
            return "disconnected"

    async with AsyncExitStack() as stack:
        sessions = await one_at_each(supervisor, stack)
        victim = next(pid for pid in supervisor.gateways())
        os.kill(victim, signal.SIGKILL)
        assert sorted([await transcribe(session) for session in sessions]) == [TEXTS["train"], "disconnected"]
    async with AsyncExitStack() as stack:
        assert [await transcribe(session) for session in await one_at_each(supervisor, stack)] == [TEXTS["train"]] * 2
    assert victim not in supervisor.gateways()


async def test_a_drain_ends_the_sessions_of_all_gateways(supervisor: Supervisor) -> None:
    """Received audio becomes final text, then all sessions end. This must be the last test of the module."""
    async with AsyncExitStack() as stack:
        sessions = await one_at_each(supervisor, stack)
        for session in sessions:
            await session.send(read("train").tobytes())
        async for event in sessions[0]:
            if isinstance(event, tutti.Interim):
                break
        supervisor.stop()
        for session in sessions:
            received: list[tutti.Event] = []
            with pytest.raises(tutti.SessionError) as ended:
                async for event in session:
                    received += [event]
            assert ended.value.code == "draining"
            assert text(received) == TEXTS["train"]
