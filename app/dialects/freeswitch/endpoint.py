"""The socket that receives FreeSWITCH's audio streams."""

from dataclasses import dataclass

from starlette.websockets import WebSocket

from app.dialects.call_streams.endpoint import serve_call, stream_key
from app.dialects.freeswitch.wire import FORK_SUBPROTOCOL, FreeSwitch
from app.publish.outbox import WriteEvent
from app.service.http_errors import error_response, invalid_key
from app.service.request_ids import request_id
from app.service.service import Service


@dataclass(frozen=True, slots=True)
class FreeSwitchEndpoint:
    """Serves audio streams."""

    write_event: WriteEvent

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one stream."""
        service: Service = websocket.app.state.service
        client = service.access.client(stream_key(websocket))
        if client is None:
            await websocket.send_denial_response(error_response(invalid_key()))
            return
        parameters = dict(websocket.query_params)
        is_fork = FORK_SUBPROTOCOL in websocket.scope.get("subprotocols", ())
        stream_sid = request_id(websocket.scope)
        await serve_call(
            websocket,
            lambda line: FreeSwitch(line, parameters, self.write_event, stream_sid=stream_sid, is_fork=is_fork),
            self.write_event,
            client=client,
            subprotocol=FORK_SUBPROTOCOL if is_fork else None,
        )
