"""Serves AudioSocket, over TCP. A client counts as unauthenticated until its call is known.

Each packet becomes a message of a WebSocket inside the server.
"""

import asyncio
import ipaddress
import logging
import uuid
from collections.abc import Mapping

from tutti_server.app.dialects.call_streams.call_stream import Opening
from tutti_server.app.dialects.call_streams.endpoint import serve_call
from tutti_server.app.dialects.native.wire import messages
from tutti_server.app.errors import BadMessage, RequestError
from tutti_server.app.live.tcp_port import TcpClient, TcpPort
from tutti_server.app.service.auth import Client
from tutti_server.app.service.service import Service
from tutti_server.app.service.settings import Settings
from tutti_server.app.sharing.store import StoreAway
from tutti_server.plugins.carriers.audiosocket.announcements import Announcements
from tutti_server.plugins.carriers.audiosocket.wire import (
    HANGUP_PACKET,
    HEADER_BYTES,
    AudioSocket,
    payload_bytes,
    read_id,
)
from tutti_server.plugins.carriers.settings import CarrierSettings

logger = logging.getLogger(__name__)


class AudioSocketListener(TcpPort):
    """Serves the port of AudioSocket."""

    name = "audiosocket"
    path = "/v1/audiosocket"

    def __init__(self, settings: Settings) -> None:
        own = settings.of(CarrierSettings)
        super().__init__(own.host(settings), own.audiosocket_port)

    async def serve_client(self, client: TcpClient) -> None:
        """See `TcpPort.serve_client`."""
        service = client.service
        try:
            first = await _read_packet(client.reader)
            call = read_id(first)
        except (asyncio.IncompleteReadError, BadMessage):
            service.unauthenticated.note_refusal("malformed")
            return
        found = await _client(service, call, client.address)
        if found is None:
            logger.info("[%s] a call is not taken: %s was not announced", client.request, call)
            service.metrics.refused_total.labels("unauthorized").inc()
            client.writer.write(HANGUP_PACKET)
            return
        caller, parameters = found
        client.connection.wait()

        def write(text: str | None) -> None:
            # Asterisk is asked to hang up at the end. There is nothing else to send.
            if text is None:
                client.writer.write(HANGUP_PACKET)

        opening = Opening(parameters=parameters)
        websocket = client.websocket(first, lambda: _read_packet(client.reader), write)
        await serve_call(websocket, lambda sink: AudioSocket(sink, opening), messages, client=caller)


async def _client(service: Service, call: uuid.UUID, address: str) -> tuple[Client, Mapping[str, str]] | None:
    """The client of a call and the parameters of the call; `None` if it may open no session."""
    try:
        announcement = await Announcements(service.store).use(call)
        if announcement is not None:
            client = await service.access.live_client(announcement.secret)
            return (client, announcement.parameters) if client else None
    except RequestError as error:
        logger.info("the call %s is not taken: %s", call, error.message)
        return None
    except StoreAway:
        logger.info("whether the call %s was announced is not known, as Redis cannot be reached", call)
    if service.access.is_open or _is_in(address, service):
        return service.access.client_without_key(), {}
    return None


def _is_in(address: str, service: Service) -> bool:
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(number in network for network in service.settings.of(CarrierSettings).networks)


async def _read_packet(reader: asyncio.StreamReader) -> bytes:
    header = await reader.readexactly(HEADER_BYTES)
    return header + await reader.readexactly(payload_bytes(header))
