"""A port over TCP, with clients that do not read."""

import asyncio
import socket

from starlette.applications import Starlette

from tests.fakes import FakeTranscriber
from tutti_server.app.live.tcp_port import TcpClient
from tutti_server.app.service.client_connections import UnauthenticatedConnections
from tutti_server.app.service.metrics import Metrics
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import AdmissionCounter

MORE_THAN_A_SOCKET_KEEPS = 16 << 20


async def test_accepting_sends_nothing_and_waits_for_no_reader() -> None:
    """The session is admitted before it: only its messages have a time limit."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(bytes(MORE_THAN_A_SOCKET_KEEPS))
        unauthenticated = UnauthenticatedConnections(
            Settings(), Metrics(FakeTranscriber()).unauthenticated, AdmissionCounter()
        )
        connection = unauthenticated.arrive(None, lambda _: None)
        client = TcpClient(app=Starlette(), path="/", reader=reader, writer=writer, connection=connection)
        try:
            await client.websocket(b"", reader.read, lambda _: None).accept()
        finally:
            writer.transport.abort()
