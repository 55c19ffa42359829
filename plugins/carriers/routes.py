"""The paths of telephone systems, and the description of the one over HTTP."""

from typing import Any

from starlette.routing import BaseRoute, Route, WebSocketRoute

from tutti_server.app.dialects.call_streams.call_stream import CallStream
from tutti_server.app.dialects.call_streams.endpoint import CallEndpoint
from tutti_server.app.dialects.native.wire import messages
from tutti_server.app.server.openapi import (
    ANY_OBJECT,
    BODY_REFUSALS,
    INTEGER,
    TEXT,
    answer,
    json_body,
    object_of,
    operation,
    with_examples,
)
from tutti_server.plugins.carriers.asterisk import Asterisk
from tutti_server.plugins.carriers.audiohook.endpoint import AudioHookEndpoint
from tutti_server.plugins.carriers.audiosocket.announcing_endpoint import announce_call
from tutti_server.plugins.carriers.freeswitch import FreeSwitch
from tutti_server.plugins.carriers.jambonz import Jambonz
from tutti_server.plugins.carriers.plivo import Plivo
from tutti_server.plugins.carriers.telnyx import Telnyx
from tutti_server.plugins.carriers.vonage import Vonage

CARRIERS: dict[str, type[CallStream]] = {
    "telnyx": Telnyx,
    "plivo": Plivo,
    "jambonz": Jambonz,
    "freeswitch": FreeSwitch,
    "asterisk": Asterisk,
    "vonage": Vonage,
}
"""The telephone systems that open a WebSocket, by their paths."""


def routes() -> list[BaseRoute]:
    """Every path of the plug-in, and its endpoint."""
    calls = {name: CallEndpoint(stream, messages).serve for name, stream in CARRIERS.items()}
    return [
        *(WebSocketRoute(f"/v1/{name}", serve) for name, serve in calls.items()),
        *(WebSocketRoute(f"/v1/{name}/{{token}}", serve) for name, serve in calls.items()),
        WebSocketRoute("/v1/audiohook", AudioHookEndpoint(write_event=messages).serve),
        Route("/v1/audiosocket/calls", announce_call, methods=["POST"]),
    ]


CALL_ID = "1b671a64-40d5-491e-99b0-da01ff1f3341"
"""The id of a call in the example."""

PATHS: dict[str, dict[str, Any]] = {
    "/v1/audiosocket/calls": {
        "post": with_examples(
            operation(
                "announceCall",
                "Expect a call over Asterisk's AudioSocket, which has no keys, for five minutes.",
                {
                    "201": answer(
                        "The id with which Asterisk must connect.",
                        application_json=object_of({"id": TEXT, "expires_at": INTEGER}),
                    )
                },
                refusals={
                    **BODY_REFUSALS,
                    "404": "AudioSocket is not served.",
                    "409": "A call was announced under this id lately.",
                    "501": "There are several gateways without Redis.",
                    "503": "The other gateways cannot be reached.",
                },
                requestBody=json_body(object_of({}, {"id": TEXT, "parameters": ANY_OBJECT})),
            ),
            request={"id": CALL_ID, "parameters": {"language": "en"}},
            answer={"id": CALL_ID, "expires_at": 1767323645},
        )
    },
}
