"""What Deepgram's endpoints have in common: who may use them, their refusals and their headers."""

from collections.abc import Sequence

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket

from tutti_server.app.dialects.http_answers import IGNORED_HEADER, header_value
from tutti_server.app.errors import RETRY_AFTER_S, BadStart, KeyLimitExceeded, LimitExceeded, RequestError
from tutti_server.app.service.auth import Client, header_key
from tutti_server.app.service.http_errors import RETRYABLE
from tutti_server.app.service.service import Service

ADJUSTED_HEADER = "x-tutti-adjusted"
"""Names the parameters whose value was replaced, and the value used."""
SCHEMES = ("token", "bearer")
"""The schemes of a key, in the `Authorization` header and as the first subprotocol."""
SLOW_UPLOAD = 408
UPLOAD_CODES = {
    400: "Bad Request",
    403: "FORBIDDEN",
    SLOW_UPLOAD: "SLOW_UPLOAD",
    413: "PAYLOAD_TOO_LARGE",
    503: "SERVICE_UNAVAILABLE",
    507: "INSUFFICIENT_STORAGE",
}
"""Deepgram's error code for each status of a failed upload."""


class Refusal(Exception):
    """A request is refused: the status, and the fields of Deepgram's error object."""

    def __init__(self, status: int, code: str, message: str, retry_after_s: int = RETRY_AFTER_S) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s

    def response(self, id_: str) -> Response:
        """The HTTP answer to the request with this id."""
        headers = {"dg-request-id": id_, "dg-error": header_value(self.message)}
        if self.status in RETRYABLE:
            headers["retry-after"] = str(self.retry_after_s)
        body = {"err_code": self.code, "err_msg": self.message, "request_id": id_}
        return JSONResponse(body, self.status, headers)


async def admit_live(websocket: WebSocket) -> tuple[Client, str | None]:
    """Check the key of a live session. Returns its client, and the subprotocol to select.

    Raises:
        Refusal: the key is not valid, or the subprotocols are others than Deepgram's.
        RequestError: the key may not be used for this, or is not known at present.
    """
    service: Service = websocket.app.state.service
    offered: list[str] = websocket.scope.get("subprotocols", [])
    subprotocol = offered[0] if offered and offered[0].lower() in SCHEMES else None
    offered_key = offered[1] if subprotocol and len(offered) > 1 else None
    client = await service.access.live_client(request_key(websocket, offered_key))
    if client is None:
        raise invalid_key()
    if offered and subprotocol is None:
        # A browser closes a socket that accepts none of its subprotocols, without showing a reason.
        raise Refusal(400, "Bad Request", "subprotocol: expected token or bearer first, and the key after it")
    return client, subprotocol


def request_key(connection: HTTPConnection, offered: str | None = None) -> str | None:
    """The key in the `Authorization` header, else the one that was offered as a subprotocol."""
    key = header_key(connection.headers, SCHEMES)
    return offered if key is None else key


def invalid_key() -> Refusal:
    """The refusal of a request without a valid key."""
    return Refusal(401, "INVALID_AUTH", "a valid API key is needed: Authorization: Token KEY, or Bearer")


def refusal_of(error: Refusal | RequestError | BadStart | LimitExceeded) -> Refusal:
    """An error in Deepgram's terms."""
    match error:
        case Refusal():
            return error
        case RequestError():
            return Refusal(error.status, UPLOAD_CODES[error.status], error.message)
        case BadStart():
            return Refusal(400, "INVALID_QUERY_PARAMETER", error.message)
        case KeyLimitExceeded():
            return Refusal(429, "TOO_MANY_REQUESTS", error.message, error.retry_after_s)
        case LimitExceeded(code="overloaded"):
            return Refusal(429, "TOO_MANY_REQUESTS", error.message)
        case _:
            return Refusal(503, "SERVICE_UNAVAILABLE", error.message)


def answer_headers(id_: str, ignored: Sequence[str], adjusted: Sequence[str]) -> dict[str, str]:
    """The headers of an answer: the request's id, and which parameters were ignored or replaced."""
    headers = {"dg-request-id": id_}
    if ignored:
        headers[IGNORED_HEADER] = header_value(", ".join(ignored))
    if adjusted:
        headers[ADJUSTED_HEADER] = header_value(", ".join(adjusted))
    return headers
