"""The socket that receives conversations over Genesys AudioHook."""

import logging
import time
from dataclasses import dataclass

from starlette.websockets import WebSocket

from tutti_server.app.dialects.call_streams.endpoint import serve_call
from tutti_server.app.errors import RequestError
from tutti_server.app.publish.outbox import WriteEvent
from tutti_server.app.service.request_ids import request_id
from tutti_server.app.service.service import Service
from tutti_server.plugins.carriers.audiohook.signature import VALID_S, BadSignature, check_signature
from tutti_server.plugins.carriers.audiohook.wire import AudioHook, Client
from tutti_server.plugins.carriers.settings import CarrierSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AudioHookEndpoint:
    """Serves conversations."""

    write_event: WriteEvent

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one conversation. Its key is in `X-API-KEY`; with a client secret, the request must be signed."""
        service: Service = websocket.app.state.service
        client = service.access.client(websocket.headers.get("x-api-key"))
        if client is None:
            message = "a valid API key is needed: X-API-KEY: KEY"
            raise RequestError(401, message, code="invalid_api_key")
        settings = service.settings.of(CarrierSettings)
        if settings.audiohook_secret:
            try:
                nonce = check_signature(websocket.headers, _target(websocket), settings.audiohook_key, time.time())
                if not await service.access.nonces.use(nonce, VALID_S):
                    raise BadSignature("expected a new nonce, got one that was used before")
            except BadSignature as error:
                service.metrics.refused_total.labels("unauthorized").inc()
                logger.info("[%s] a signature is not valid: %s", request_id(websocket.scope), error)
                raise RequestError(401, f"signature: {error}", code="bad_signature") from error
        about = Client(
            parameters=dict(websocket.query_params),
            organization=websocket.headers.get("audiohook-organization-id"),
            session=websocket.headers.get("audiohook-session-id"),
            languages_of=lambda model: service.models.named(model).languages,
        )
        await serve_call(websocket, lambda sink: AudioHook(sink, about), self.write_event, client=client)


def _target(websocket: WebSocket) -> str:
    """The path of the request with its query, as it came."""
    path: bytes = websocket.scope.get("raw_path") or websocket.scope["path"].encode()
    query: bytes = websocket.scope.get("query_string", b"")
    return (path + (b"?" + query if query else b"")).decode("latin-1")
