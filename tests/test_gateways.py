"""`tutti serve --gateways 2`: real processes around the embedded model, from a client's socket and back."""

import asyncio
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import trustme

import tutti
from benchmarks.server_counters import Counters
from tests.recordings import AUDIO, TEXTS, read

PATIENCE_S = 100.0
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")} | {"COLUMNS": "120"}
MAX_SESSIONS = 12


@dataclass
class Supervisor:
    """A service of three processes."""

    process: subprocess.Popen[str]
    address: str
    log: Path
    tls: ssl.SSLContext
    is_stopping: bool = False

    def stop(self) -> None:
        """Have it drain. A second signal would not wait."""
        if not self.is_stopping:
            self.process.send_signal(signal.SIGTERM)
        self.is_stopping = True

    def connect(self, **options: object):
        return tutti.connect(f"wss://{self.address}", ssl=self.tls, language="en", **options)

    def http(self) -> httpx.AsyncClient:
        """Every client dials anew, so that it may meet any gateway."""
        return httpx.AsyncClient(base_url=f"https://{self.address}", verify=self.tls, timeout=PATIENCE_S)

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def _is_gateway(self, pid: int) -> bool:
        command = Path(f"/proc/{pid}/cmdline").read_text()
        return "resource_tracker" not in command and not self.has_torch(pid)

    def with_torch(self) -> list[int]:
        """The processes that have loaded it."""
        return [pid for pid in self.children() if self.has_torch(pid)]

    def has_torch(self, pid: int) -> bool:
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()

    def gateways(self) -> list[int]:
        """The children that are neither the engine nor Python's tracker of shared memory."""
        return [pid for pid in self.children() if self._is_gateway(pid)]

    def gateway_of(self, session: tutti.Session) -> str:
        """Which process has a session, by its line in the log."""
        opened = rf"INFO (gateway-\d) app.live.connection: \[{session.started.session_id}\] opened"
        (gateway,) = re.findall(opened, self.log.read_text())
        return str(gateway)


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """Encrypted; at the end it must end by itself, and leave nothing behind."""
    folder = tmp_path_factory.mktemp("gateways")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
    tls = ssl.create_default_context()
    authority.configure_trust(tls)
    log = folder / "log"
    options = {"gateways": 2, "port": 0, "max-sessions": MAX_SESSIONS, "max-ahead-s": 600, "final-deadline-s": 90}
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
        cell = Supervisor(process, address, log, tls)
        yield cell
        cell.stop()
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


async def listen(cell: Supervisor, audio: bytes, **options: object) -> list[tutti.Event]:
    async with cell.connect(**options) as session:
        await session.send(audio)
        await session.stop()
        return [event async for event in session]


def text(events: list[tutti.Event]) -> str:
    return " ".join(event.text for event in events if isinstance(event, tutti.Utterance) and event.text)


async def one_at_each(cell: Supervisor, stack: AsyncExitStack) -> list[tutti.Session]:
    """Open sessions until both gateways have one; these two."""
    at: dict[str, tutti.Session] = {}
    while len(at) < 2:
        session = await stack.enter_async_context(cell.connect())
        at[cell.gateway_of(session)] = session
    return [at[name] for name in sorted(at)]


async def test_every_gateway_hears_what_one_process_hears(cell: Supervisor) -> None:
    """Live at both of them, and as a file."""
    async with AsyncExitStack() as stack:
        for session in await one_at_each(cell, stack):
            await session.send(read("train").tobytes())
            await session.stop()
            assert text([event async for event in session]) == TEXTS["train"]
    async with cell.http() as client:
        files = {"file": ("train.flac", (AUDIO / "train.flac").read_bytes())}
        answer = await client.post("/v1/audio/transcriptions", files=files, data={"language": "en"})
    assert answer.json()["text"] == TEXTS["train"]


def test_only_the_engines_process_has_torch(cell: Supervisor) -> None:
    """The supervisor and the gateways stay small."""
    assert len(cell.with_torch()) == 1
    assert len(cell.gateways()) == 2
    assert not cell.has_torch(cell.process.pid)


async def test_metrics_are_those_of_the_whole_service(cell: Supervisor) -> None:
    """Sessions of both gateways are counted in whatever page is read, and the engine's figures are in it."""

    async def counters() -> Counters:
        async with cell.http() as client:
            return Counters.parse((await client.get("/metrics")).text)

    before = await counters()
    async with AsyncExitStack() as stack:
        await one_at_each(cell, stack)
        during = [await counters() for _ in range(8)]
        n_open = {each.value("tutti_sessions_open") for each in during}
        assert len(n_open) == 1 and n_open.pop() >= 2
        grown = during[0] - before
        assert grown.value("tutti_sessions_total") == during[0].value("tutti_sessions_open")
    assert during[0].value("tutti_engine_windows_total", how="done") > 0


async def test_limits_count_the_sessions_of_all(cell: Supervisor) -> None:
    """Exactly as many as are allowed come in, wherever they land."""
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(cell.connect()) for _ in range(MAX_SESSIONS)]
        assert len({cell.gateway_of(session) for session in sessions}) == 2
        for _ in range(3):
            with pytest.raises(tutti.TuttiError, match="no room"):
                await stack.enter_async_context(cell.connect())


async def test_sessions_outlive_the_engine(cell: Supervisor) -> None:
    """Killed while someone speaks: the session goes on, every utterance ends once, and the text is the same."""
    audio = read("call")
    alone = await listen(cell, audio.tobytes())
    half = len(audio) // 2
    async with cell.connect() as session:
        heard: list[tutti.Event] = []
        await session.send(audio[:half].tobytes())
        async for event in session:
            heard.append(event)
            if isinstance(event, tutti.Interim):
                break
        (engine,) = cell.with_torch()
        os.kill(engine, signal.SIGKILL)
        async with cell.http() as client:
            while (await client.get("/readyz")).status_code != 503:
                pass
        await session.send(audio[half:].tobytes())
        await session.stop()
        heard += [event async for event in session]
    assert text(heard) == text(alone)
    begun = [event.utterance for event in heard if isinstance(event, tutti.SpeechStarted)]
    ended = [event.utterance for event in heard if isinstance(event, tutti.Utterance)]
    assert begun == ended and len(set(ended)) == len(ended)
    assert not [event for event in heard if isinstance(event, tutti.ErrorEvent)]
    assert "supervisor cluster.local.supervisor: engine" in cell.log.read_text()


async def test_a_gateway_that_dies_is_replaced(cell: Supervisor) -> None:
    """Its own clients are cut off, and may come in again; the others notice nothing."""

    async def say(session: tutti.Session) -> str:
        try:
            await session.send(read("train").tobytes())
            await session.stop()
            return text([event async for event in session])
        except tutti.ConnectionLost:
            return "cut off"

    async with AsyncExitStack() as stack:
        sessions = await one_at_each(cell, stack)
        victim = next(pid for pid in cell.gateways())
        os.kill(victim, signal.SIGKILL)
        assert sorted([await say(session) for session in sessions]) == [TEXTS["train"], "cut off"]
    async with AsyncExitStack() as stack:
        assert [await say(session) for session in await one_at_each(cell, stack)] == [TEXTS["train"]] * 2
    assert victim not in cell.gateways()


async def test_a_drain_ends_the_sessions_of_all_gateways(cell: Supervisor) -> None:
    """What was said is made final, and everybody is sent elsewhere. The last test: nobody is served behind it."""
    async with AsyncExitStack() as stack:
        sessions = await one_at_each(cell, stack)
        for session in sessions:
            await session.send(read("train").tobytes())
        async for event in sessions[0]:
            if isinstance(event, tutti.Interim):
                break
        cell.stop()
        for session in sessions:
            heard: list[tutti.Event] = []
            with pytest.raises(tutti.SessionError) as ended:
                async for event in session:
                    heard += [event]
            assert ended.value.code == "draining"
            assert text(heard) == TEXTS["train"]
