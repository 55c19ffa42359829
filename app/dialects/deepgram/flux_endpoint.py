"""The endpoint of Deepgram's Flux: `/v2/listen` over a WebSocket."""

import logging
import uuid

from starlette.websockets import WebSocket

from tutti_server.app.dialects.deepgram.common_endpoint import Refusal, admit_live, answer_headers, refusal_of
from tutti_server.app.dialects.deepgram.flux_options import parse
from tutti_server.app.dialects.deepgram.flux_wire import Flux
from tutti_server.app.errors import BadStart, LimitExceeded, RequestError
from tutti_server.app.live.accept import serve_session
from tutti_server.app.service.request_ids import request_id
from tutti_server.app.service.service import Service

logger = logging.getLogger(__name__)


async def listen_to_turns(websocket: WebSocket) -> None:
    """Serve a live session that reports turns. A refusal is an HTTP answer before the upgrade."""
    service: Service = websocket.app.state.service
    # Deepgram's schema wants a UUID.
    id_ = str(uuid.uuid5(uuid.NAMESPACE_OID, request_id(websocket.scope)))
    try:
        client, subprotocol = await admit_live(websocket)
        options = parse(websocket.query_params.multi_items(), service.transcriber.info.languages)
        logger.info("[%s] its client knows it as %s", request_id(websocket.scope), id_)
        headers = answer_headers(id_, options.ignored, options.adjusted)
        await serve_session(websocket, Flux(options, id_), subprotocol, headers, client=client)
    except (Refusal, RequestError, BadStart, LimitExceeded) as error:
        await websocket.send_denial_response(refusal_of(error).response(id_))
