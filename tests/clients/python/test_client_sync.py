"""The client without asyncio, as an ordinary program uses it."""

import asyncio
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

import tutti.sync
from tests.clients.python.client_fakes import Peer, answer_start, make_started, serve_answer, serve_script
from tests.clients.python.test_client_readme import converse


async def in_thread(work: Callable[[], object]) -> None:
    """Run a program that knows no event loop, beside the server."""
    async with asyncio.timeout(30):
        await asyncio.to_thread(work)
    assert not [thread for thread in threading.enumerate() if thread.name == "tutti"]


async def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.mp3").write_bytes(b"ID3")
    reports: list[tutti.FileProgress] = []

    def program() -> None:
        events = list(tutti.sync.transcribe_file(server.url, tmp_path / "a.mp3", on_progress=reports.append))
        assert [type(event).__name__ for event in events] == ["Segment", "Utterance", "Stopped"]
        with pytest.raises(FileNotFoundError):
            list(tutti.sync.transcribe_file(server.url, tmp_path / "b.mp3"))

    async with serve_answer() as server:
        await in_thread(program)
    assert reports[-1].sent_bytes == reports[-1].total_bytes == 3


async def test_a_live_session() -> None:
    """Commands and events; `stopped` ends the iteration."""

    def program() -> None:
        with tutti.sync.connect(server.url, language="en") as session:
            assert session.started.model == "fake"
            session.send(bytes(3200))
            session.keepalive()
            flush = session.flush()
            for event in session:
                if event == tutti.Flushed(flush):
                    session.stop()
            assert session.stopped is not None

    async with serve_script(converse) as server:
        await in_thread(program)


async def test_a_stream() -> None:
    """Of a source that waits: it and the events each have a thread."""
    is_heard = threading.Event()

    def source() -> Iterator[bytes]:
        yield bytes(3200)
        assert is_heard.wait(10), "events come while the source waits"
        yield bytes(1600)

    def program() -> None:
        with tutti.sync.connect(server.url) as session:
            types = []
            for event in session.stream(source()):
                types.append(event.type)
                is_heard.set()
        assert types == ["interim", "segment", "utterance", "stopped"]

    async with serve_script(converse) as server:
        await in_thread(program)
    assert sum(map(len, server.peers[0].audio)) == 4800


async def test_the_audio_of_a_stream_is_ended_from_outside() -> None:
    """By the thread that reads events, while the source has more."""
    is_ended = threading.Event()

    def source() -> Iterator[bytes]:
        yield bytes(3200)
        assert is_ended.wait(10)
        while True:
            yield bytes(3200)

    def program() -> None:
        with tutti.sync.connect(server.url) as session:
            for event in session.stream(source()):
                if event.type == "interim":
                    session.end_audio()
                    is_ended.set()
            assert session.stopped is not None
            assert session.final_until_s == session.resume_from_s[0] > 0

    async with serve_script(converse) as server:
        await in_thread(program)


async def test_the_error_of_a_source_is_raised_after_the_text_before_it() -> None:
    def source() -> Iterator[bytes]:
        yield bytes(3200)
        raise OSError("unplugged")

    def program() -> None:
        types = []
        with tutti.sync.connect(server.url) as session, pytest.raises(OSError, match="unplugged"):
            types += [event.type for event in session.stream(source())]
        with tutti.sync.connect(server.url) as session:
            types += [event.type for event in session.stream([bytes(3200)])]
        assert types == ["interim", "segment", "utterance", "stopped"]

    async with serve_script(converse) as server:
        await in_thread(program)


async def test_a_stream_that_is_left_reads_no_more() -> None:
    """So the program can close its source at once, which it cannot while a thread is inside it."""
    is_inside, may_go_on = threading.Event(), threading.Event()

    def endless() -> Generator[bytes, None, None]:
        yield bytes(3200)
        while True:
            is_inside.set()
            may_go_on.wait()
            yield bytes(3200)

    def program() -> None:
        source = endless()
        with tutti.sync.connect(server.url) as session:
            events = session.stream(source)
            next(events)
            assert is_inside.wait(10)
            # Leaving waits for the chunk, so another thread lets the source go on.
            threading.Timer(0.1, may_go_on.set).start()
            events.close()
            source.close()

    async with serve_script(converse) as server:
        await in_thread(program)


async def test_leaving_early_closes_the_connection() -> None:
    """Out of the loop, and with an error."""

    def program() -> None:
        with tutti.sync.connect(server.url) as session:
            for _ in session:
                break
        with pytest.raises(ZeroDivisionError), tutti.sync.connect(server.url):
            raise ZeroDivisionError

    async with serve_script(answer_start(make_started(), {"type": "lag", "behind_s": 2.5})) as server:
        await in_thread(program)
    assert len(server.peers) == 2


async def test_nothing_is_taken_after_leaving() -> None:
    """As without threads: a thread that still sends gets the error of a session that is closed."""

    def program() -> None:
        with tutti.sync.connect(server.url) as session:
            pass
        for late in (lambda: session.send(bytes(2)), session.flush, session.keepalive, lambda: next(iter(session))):
            with pytest.raises(tutti.ConnectionLost, match="closed"):
                late()

    async with serve_script(Peer.begin) as server:
        await in_thread(program)


async def test_a_server_that_is_gone_is_an_error() -> None:
    def program() -> None:
        with pytest.raises(tutti.Unreachable), tutti.sync.connect("ws://127.0.0.1:1"):
            pass

    await in_thread(program)


@pytest.mark.default
async def test_a_program_may_end_with_a_file_that_it_has_not_read(tmp_path: Path) -> None:
    """No other thread runs then, so nothing waits for one."""
    (tmp_path / "a.mp3").write_bytes(b"ID3")
    program = "import sys, tutti.sync; events = tutti.sync.transcribe_file(*sys.argv[1:]); next(events)"
    async with serve_answer() as server, asyncio.timeout(30):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, server.url, str(tmp_path / "a.mp3"), stderr=asyncio.subprocess.PIPE
        )
        try:
            assert (await process.communicate())[1] == b""
            assert process.returncode == 0
        finally:
            if process.returncode is None:
                process.kill()
