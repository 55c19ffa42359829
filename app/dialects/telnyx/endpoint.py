"""The socket that receives calls of Telnyx."""

from dataclasses import dataclass

from starlette.websockets import WebSocket

from app.dialects.call_streams.endpoint import serve_call, stream_key
from app.dialects.telnyx.wire import Telnyx
from app.publish.outbox import WriteEvent
from app.service.http_errors import error_response, invalid_key
from app.service.service import Service

TOKEN_HEADER = "x-telnyx-streaming-auth-token"
"""The header with the `stream_auth_token` of the command that started the stream."""


@dataclass(frozen=True, slots=True)
class TelnyxEndpoint:
    """Serves WebSockets that Telnyx dials."""

    write_event: WriteEvent

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one stream of a call."""
        service: Service = websocket.app.state.service
        client = service.access.client(stream_key(websocket) or websocket.headers.get(TOKEN_HEADER))
        if client is None:
            await websocket.send_denial_response(error_response(invalid_key()))
            return
        parameters = dict(websocket.query_params)
        await serve_call(websocket, lambda line: Telnyx(line, parameters), self.write_event, client=client)
