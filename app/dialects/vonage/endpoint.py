"""The socket that receives calls of the Vonage Voice API."""

from dataclasses import dataclass

from starlette.websockets import WebSocket

from app.dialects.call_streams.endpoint import serve_call, stream_key
from app.dialects.vonage.wire import Vonage
from app.publish.outbox import WriteEvent
from app.service.http_errors import error_response, invalid_key
from app.service.request_ids import request_id
from app.service.service import Service


@dataclass(frozen=True, slots=True)
class VonageEndpoint:
    """Serves WebSockets that Vonage dials."""

    write_event: WriteEvent

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one call."""
        service: Service = websocket.app.state.service
        client = service.access.client(stream_key(websocket))
        if client is None:
            await websocket.send_denial_response(error_response(invalid_key()))
            return
        parameters = dict(websocket.query_params)
        await serve_call(
            websocket,
            lambda line: Vonage(line, parameters, stream_sid=request_id(websocket.scope)),
            self.write_event,
            client=client,
        )
