"""A port over TCP, with clients that do not read."""

import asyncio
import socket

from starlette.applications import Starlette

from tests.fakes import FakeTranscriber
from tutti_server.app.live.tcp_port import TcpClient
from tutti_server.app.service.metrics import Metrics
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import AdmissionCounter
from tutti_server.app.service.strangers import Strangers

MORE_THAN_A_SOCKET_KEEPS = 16 << 20


async def test_accepting_sends_nothing_and_waits_for_no_reader() -> None:
    """The place of a session is taken before it: only its messages have a time limit."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(bytes(MORE_THAN_A_SOCKET_KEEPS))
        strangers = Strangers(Settings(), Metrics(FakeTranscriber()).strangers, AdmissionCounter())
        visitor = strangers.arrive(None, lambda _: None)
        client = TcpClient(app=Starlette(), path="/", reader=reader, writer=writer, visitor=visitor)
        try:
            await client.websocket(b"", reader.read, lambda _: None).accept()
        finally:
            writer.transport.abort()
