"""Admits a WebSocket, accepts it and serves a session on it: the same steps for every dialect."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from secrets import token_hex

from starlette.websockets import WebSocket, WebSocketState

from tutti_server.app.live.connection import Connection
from tutti_server.app.live.dialect import Dialect
from tutti_server.app.live.reader import Publication
from tutti_server.app.service.auth import Client
from tutti_server.app.service.client_connections import admit, let_wait
from tutti_server.app.service.key_limits import AdmitSession
from tutti_server.app.service.request_ids import request_id
from tutti_server.app.service.service import Service
from tutti_server.app.session.session import Session, used_audio_s


async def serve_session(
    websocket: WebSocket,
    dialect: Dialect,
    subprotocol: str | None,
    headers: Mapping[str, str] | None = None,
    *,
    client: Client,
    flush_after_s: float | None = None,
    publication: Publication | None = None,
    first_messages: Sequence[str] = (),
) -> None:
    """Admit a WebSocket, accept it unless it is accepted, and serve a session on it until it ends.

    Where clients need no key, it is unauthenticated until its first valid message. So it is, too, where there are
    reservations for clients that have lost their sessions: the message tells whether it is one of them. A client for
    which there is no room is answered by the caller, or by the application if the caller does not.

    Args:
        headers: sent with the upgrade.
        flush_after_s, publication, first_messages: see `Connection`.

    Raises:
        LimitExceeded: the service has no room, or the client's key has used what it may. The WebSocket has not been
            accepted here.
    """
    service: Service = websocket.app.state.service
    session = Session(f"s_{token_hex(8)}", service.transcriber.info, service.session_config)
    connection = Connection(
        websocket,
        dialect,
        session,
        service,
        flush_after_s=flush_after_s,
        publication=publication,
        first_messages=first_messages,
    )
    admit_later: AdmitSession | None = None
    async with AsyncExitStack() as admissions:
        admit_for_key = await admissions.enter_async_context(
            service.access.limits.session(
                client.key,
                lambda: used_audio_s(session, is_lost=connection.is_lost),
                may_return=service.admission.expects_returns,
            )
        )

        def admit_session(is_resumed: bool) -> None:
            # With the reservation for a lost session its client may have that session's share of the key, too.
            admit_for_key(is_resumed and service.admission.expects_returns)
            admissions.enter_context(service.admission.session(connection, is_resumed=is_resumed))
            admit(websocket.scope)

        if service.access.is_open or service.admission.expects_returns:
            admissions.enter_context(service.admission.guest(connection))
            let_wait(websocket.scope)
            admit_later = admit_session
        else:
            admit_session(False)
        if websocket.application_state is WebSocketState.CONNECTING:
            sent = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
            await websocket.accept(subprotocol, sent)
        request = request_id(websocket.scope)
        with service.tracing.session(websocket.scope, request, session.id, service.transcriber.info.name) as trace:
            await connection.serve(request, trace, admit_later)
