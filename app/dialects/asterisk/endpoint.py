"""The socket that receives channels of Asterisk's `chan_websocket`."""

from dataclasses import dataclass

from starlette.websockets import WebSocket

from app.dialects.asterisk.wire import SUBPROTOCOL, Asterisk
from app.dialects.call_streams.endpoint import serve_call, stream_key
from app.publish.outbox import WriteEvent
from app.service.http_errors import error_response, invalid_key
from app.service.service import Service


@dataclass(frozen=True, slots=True)
class AsteriskEndpoint:
    """Serves WebSocket channels."""

    write_event: WriteEvent

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one channel."""
        service: Service = websocket.app.state.service
        client = service.access.client(stream_key(websocket))
        if client is None:
            await websocket.send_denial_response(error_response(invalid_key()))
            return
        parameters = dict(websocket.query_params)
        await serve_call(
            websocket,
            lambda line: Asterisk(line, parameters),
            self.write_event,
            client=client,
            subprotocol=SUBPROTOCOL if SUBPROTOCOL in websocket.scope.get("subprotocols", ()) else None,
        )
