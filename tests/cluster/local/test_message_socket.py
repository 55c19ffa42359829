"""Messages between processes: whole, in order, and none lost while both ends live."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import PATIENCE_S, until
from tutti_server.cluster.local.message_socket import MessageServer, MessageSocket

LARGE = bytes(range(256)) * 20_000
"""A message that no socket takes at once."""


class Serving:
    """A server that keeps what it receives."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.server = MessageServer(self.path)
        self.received: list[tuple[bytes, bytes]] = []
        self.task = asyncio.create_task(self.server.receive(self._handle))

    def _handle(self, client: bytes, message: bytes) -> None:
        if message == b"bad":
            raise ValueError("a bad message")
        self.received.append((client, message))

    async def end(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError, ValueError):
            await self.task
        self.server.close()


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    serving = Serving(tmp_path / "socket")
    yield serving
    await serving.end()


async def exchange(path: Path) -> None:
    """Large and small messages in both directions, sent before either side has received anything."""
    serving = Serving(path)
    sent = [b"first", LARGE, b"", LARGE[:70_000], b"last"]
    clients = {name: MessageSocket.connect(serving.path, name) for name in (b"one", b"two")}
    answers: dict[bytes, list[bytes]] = {name: [] for name in clients}
    tasks = [asyncio.create_task(client.receive(answers[name].append)) for name, client in clients.items()]
    for client in clients.values():
        for message in sent:
            client.send(message)
    await until(lambda: len(serving.received) == 2 * len(sent))
    for name in clients:
        assert [message for client, message in serving.received if client == name] == sent
        for message in sent:
            serving.server.send(name, name + message)
    await until(lambda: all(len(each) == len(sent) for each in answers.values()))
    assert answers == {name: [name + message for message in sent] for name in clients}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await serving.end()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_messages_arrive_whole_and_in_order(run: Callable[..., None], tmp_path: Path) -> None:
    """On both event loops, from and to several clients."""
    run(exchange(tmp_path / "socket"))


@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_messages_do_not_depend_on_how_their_bytes_arrive(messages: list[bytes], data: st.DataObject) -> None:
    """The bytes of a connection may be cut anywhere."""
    stream = b"".join(len(each).to_bytes(4, "little") + each for each in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))

    async def receive() -> list[bytes]:
        near, far = socket.socketpair()
        received: list[bytes] = []
        task = asyncio.create_task(MessageSocket(near).receive(received.append))
        for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            far.sendall(stream[begin:end])
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await until(lambda: len(received) >= len(messages))
        task.cancel()
        far.close()
        await asyncio.gather(task, return_exceptions=True)
        return received

    assert asyncio.run(receive()) == messages


async def test_an_error_of_the_handler_ends_receiving(serving: Serving) -> None:
    """The task that receives raises it, at both ends, so that no process goes on without its messages."""

    def fail(message: bytes) -> None:
        raise ValueError(message)

    client = MessageSocket.connect(serving.path, b"one")
    task = asyncio.create_task(client.receive(fail))
    client.send(b"good")
    await until(lambda: bool(serving.received))
    serving.server.send(b"one", b"answer")
    with pytest.raises(ValueError, match="answer"):
        await asyncio.wait_for(task, PATIENCE_S)
    another = MessageSocket.connect(serving.path, b"two")
    for message in (b"bad", b"good"):
        another.send(message)
    with pytest.raises(ValueError, match="a bad message"):
        await asyncio.wait_for(serving.task, PATIENCE_S)
    assert serving.received == [(b"one", b"good")]
    another.close()


async def test_a_connection_whose_other_end_is_gone_stays_quiet(serving: Serving) -> None:
    """Whether the client has ended, was dropped or never came, or the server has ended or was never there."""
    kept, dropped, ended = (MessageSocket.connect(serving.path, name) for name in (b"kept", b"dropped", b"ended"))
    for client in (kept, dropped, ended):
        client.send(b"hello")
    await until(lambda: len(serving.received) == 3)
    serving.server.drop(b"dropped")
    ended.close()
    for name in (b"dropped", b"ended", b"unknown"):
        for _ in range(3):
            serving.server.send(name, LARGE)
    dropped.send(b"lost")
    kept.send(b"still here")
    await until(lambda: len(serving.received) == 4)
    assert serving.received[-1] == (b"kept", b"still here")
    await serving.end()
    unserved = MessageSocket.connect(f"{serving.path}-of-unserved", b"kept")
    task = asyncio.create_task(unserved.receive(lambda _: pytest.fail("received")))
    for client in (kept, unserved):
        for _ in range(3):
            client.send(LARGE)
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for client in (kept, dropped):
        client.close()
