"""HTTP answers to requests that are refused, in the shape of OpenAI's API."""

from starlette.responses import JSONResponse, Response

from tutti_server.app.errors import KeyLimitExceeded, LimitExceeded, RequestError
from tutti_server.app.service.auth import Client

RETRYABLE = (429, 503)
"""Statuses after which a client may try again. OpenAI's clients do so by themselves when `Retry-After` is set."""


def error_body(error: RequestError) -> dict[str, dict[str, str | None]]:
    """OpenAI's JSON object for an error."""
    if error.status == 429:
        kind = "rate_limit_error"
    else:
        kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def error_response(error: RequestError) -> Response:
    """The HTTP answer to a request that is refused."""
    headers = {}
    if error.status in RETRYABLE:
        headers["retry-after"] = str(error.retry_after_s)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(error_body(error), error.status, headers)


def authorized(client: Client | None) -> Client:
    """The client of a request.

    Raises:
        RequestError: there is none, as the request shows no valid API key.
    """
    if client is None:
        raise RequestError(401, "a valid API key is needed: Authorization: Bearer KEY", code="invalid_api_key")
    return client


def no_room(error: LimitExceeded) -> RequestError:
    """The refusal of a live session: the server is full or is going down, or the client's key has used what it may."""
    if isinstance(error, KeyLimitExceeded):
        return key_limit(error)
    return RequestError(503, error.message, code=error.code)


def no_room_for_upload(error: LimitExceeded) -> RequestError:
    """The refusal of an upload: 429 if the server is full, so that the client waits; 503 if it is going down."""
    if isinstance(error, KeyLimitExceeded):
        return key_limit(error)
    return RequestError(429 if error.code == "overloaded" else 503, error.message, code=error.code)


def key_limit(error: KeyLimitExceeded) -> RequestError:
    """The refusal of a session or an upload whose key has used what it may."""
    return RequestError(429, error.message, code=error.code, retry_after_s=error.retry_after_s)
