"""The socket that jambonz dials for speech recognition."""

from starlette.websockets import WebSocket

from app.dialects.call_streams.endpoint import stream_key
from app.dialects.jambonz.wire import Jambonz
from app.errors import LimitExceeded
from app.live.accept import serve_session
from app.service.http_errors import error_response, invalid_key, no_room
from app.service.service import Service


async def jambonz(websocket: WebSocket) -> None:
    """Serve one recogniser of a call."""
    service: Service = websocket.app.state.service
    client = service.access.client(stream_key(websocket))
    if client is None:
        await websocket.send_denial_response(error_response(invalid_key()))
        return
    dialect = Jambonz()
    try:
        await serve_session(websocket, dialect, None, client=client, on_disconnect=dialect.leave)
    except LimitExceeded as error:
        await websocket.send_denial_response(error_response(no_room(error)))
