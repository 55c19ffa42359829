"""A WebSocket becomes a session: the same steps for every dialect."""

from collections.abc import Callable, Iterable, Mapping
from secrets import token_hex

from starlette.responses import Response
from starlette.websockets import WebSocket

from app.errors import LimitExceeded
from app.live.connection import Connection
from app.live.dialect import Dialect, ClientMessage
from app.service.service import Service
from app.session.session import Session

Refuse = Callable[[LimitExceeded], Response]
"""Why there is no room, as an answer before the upgrade."""


async def serve(
    websocket: WebSocket,
    dialect: Dialect,
    subprotocol: str | None,
    refuse: Refuse,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Accept a WebSocket and serve a session in this dialect, unless there is no room: `refuse` makes the answer.

    Args:
        headers: sent with the upgrade.
    """
    try:
        await run(websocket, dialect, subprotocol, headers)
    except LimitExceeded as error:
        await websocket.send_denial_response(refuse(error))


async def run(
    websocket: WebSocket,
    dialect: Dialect,
    subprotocol: str | None,
    headers: Mapping[str, str] | None = None,
    flush_after_s: float | None = None,
    on_disconnect: Callable[[], Iterable[ClientMessage]] | None = None,
) -> None:
    """Accept a WebSocket and serve a session in this dialect.

    Args:
        headers: sent with the upgrade.
        flush_after_s, on_disconnect: see `Connection`.

    Raises:
        LimitExceeded: there is no room; nothing has been accepted.
    """
    service: Service = websocket.app.state.service
    session = Session(f"s_{token_hex(8)}", service.transcriber.info, service.session_config)
    connection = Connection(
        websocket,
        dialect,
        session,
        service.transcriber,
        service.settings,
        service.metrics,
        service.final_waits,
        flush_after_s=flush_after_s,
        on_disconnect=on_disconnect,
    )
    with service.admitted_session(connection):
        await websocket.accept(
            subprotocol, [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        )
        await connection.serve()
