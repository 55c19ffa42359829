"""`tutti serve --gateways 2`: real processes with the small model, as clients see them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import tutti
from tests.recordings import AUDIO, TEXTS, read
from tests.supervised import PATIENCE_S, Supervisor, listen, supervised, text

MAX_SESSIONS = 12


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    with supervised(tmp_path_factory.mktemp("gateways"), gateways=2, max_sessions=MAX_SESSIONS) as supervisor:
        yield supervisor


@pytest.fixture(autouse=True)
async def patience() -> AsyncIterator[None]:
    async with asyncio.timeout(PATIENCE_S):
        yield


async def one_at_each(supervisor: Supervisor, stack: AsyncExitStack) -> list[tutti.Session]:
    """Open a session at each of both gateways. While one is started again, the other serves all."""
    sessions: dict[str, tutti.Session] = {}
    while len(sessions) < 2:
        async with AsyncExitStack() as opened:
            session = await opened.enter_async_context(supervisor.connect())
            if (name := supervisor.gateway_of(session)) not in sessions:
                sessions[name] = session
                stack.push_async_exit(opened.pop_all())
    return [sessions[name] for name in sorted(sessions)]


async def test_only_the_engines_process_has_torch(supervisor: Supervisor) -> None:
    """The supervisor and the gateways stay small. Metrics have the memory of each process."""
    counters = await supervisor.counters()
    for process in ("supervisor", "engine", "gateway-0", "gateway-1"):
        assert counters.value("process_resident_memory_bytes", process=process) > 1 << 20, process
    assert len(supervisor.with_torch()) == 1
    assert len(supervisor.gateways()) == 2
    assert not supervisor.has_torch(supervisor.process.pid)


async def test_each_gateway_gives_the_same_text_and_the_metrics_of_the_whole_service(supervisor: Supervisor) -> None:
    """For live sessions at both, and for a file. A page counts the sessions of both, and has the engine's figures."""
    before = await supervisor.counters()
    async with AsyncExitStack() as stack:
        sessions = await one_at_each(supervisor, stack)
        during = [await supervisor.counters() for _ in range(8)]
        n_open = {each.value("tutti_sessions_open") for each in during}
        assert len(n_open) == 1 and n_open.pop() >= 2
        grown = during[0] - before
        assert grown.value("tutti_sessions_total") >= during[0].value("tutti_sessions_open")
        for session in sessions:
            await session.send(read("train").tobytes())
            await session.stop()
            assert text([event async for event in session]) == TEXTS["train"]
    async with supervisor.http() as client:
        files = {"file": ("train.flac", (AUDIO / "train.flac").read_bytes())}
        answer = await client.post("/v1/audio/transcriptions", files=files, data={"language": "en"})
    assert answer.json()["text"] == TEXTS["train"]
    for _ in range(8):  # enough to reach both gateways, which receive the engine's counters one period later
        while (await supervisor.counters() - before).value("tutti_engine_windows_total", how="done") < len(sessions):
            pass


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
    assert "supervisor tutti_server.cluster.local.supervisor: engine" in supervisor.log.read_text()


async def test_sessions_outlive_a_signal_to_read_files_again(supervisor: Supervisor) -> None:
    """Whichever processes get it: service managers may send it to all."""
    async with AsyncExitStack() as stack:
        sessions = await one_at_each(supervisor, stack)
        for pid in (supervisor.process.pid, *supervisor.gateways(), *supervisor.with_torch()):
            os.kill(pid, signal.SIGHUP)
        for session in sessions:
            await session.send(read("train").tobytes())
            await session.stop()
            assert text([event async for event in session]) == TEXTS["train"]
    assert "SIGHUP changes nothing" in supervisor.log.read_text()


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
        assert len(await one_at_each(supervisor, stack)) == 2
    assert victim not in supervisor.gateways()


async def test_the_sessions_of_a_gateway_that_dies_have_reservations(supervisor: Supervisor) -> None:
    """The service is full: newcomers are refused by any gateway, and every client that goes on with its session is not.

    Limits count the sessions of both gateways.
    """
    async with AsyncExitStack() as stack, AsyncExitStack() as newcomers:
        sessions = [
            await stack.enter_async_context(tutti.connect(f"wss://{supervisor.address}", ssl=supervisor.tls))
            for _ in range(MAX_SESSIONS)
        ]
        assert len({supervisor.gateway_of(session) for session in sessions}) == 2
        with pytest.raises(tutti.TuttiError, match="no room"):
            await newcomers.enter_async_context(supervisor.connect())
        os.kill(supervisor.gateways()[0], signal.SIGKILL)
        for _ in range(6):
            with pytest.raises(tutti.TuttiError, match="no room"):
                await newcomers.enter_async_context(supervisor.connect())
        for session in sessions:
            await session.stop()
        received = [[event async for event in session] for session in sessions]
    assert sum(isinstance(event, tutti.Resumed) for events in received for event in events) >= 1


@pytest.mark.nightly
def test_two_engines_have_one_gateway(tmp_path: Path) -> None:
    """Without `--gateways`. Only the engines have torch."""
    with supervised(tmp_path, engines=2) as supervisor:
        assert (len(supervisor.with_torch()), len(supervisor.gateways())) == (2, 1)


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
