"""How HTTP requests are refused in the shape of OpenAI's API, and whose key they bring."""

from starlette.responses import JSONResponse, Response

from app.errors import RETRY_AFTER_S

KINDS = {429: "rate_limit_error"}


class RequestError(Exception):
    """A request that is refused: its status, and what goes into OpenAI's error envelope."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(status, message, param, code)
        self.status = status
        self.message = message
        self.param = param
        self.code = code

    def __str__(self) -> str:
        return self.message

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        kind = KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The answer; where it pays to try again it says when, which OpenAI's clients do by themselves."""
        headers = {}
        if self.status in (429, 503):
            headers["retry-after"] = str(RETRY_AFTER_S)
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return JSONResponse(self.body, self.status, headers)


def bearer_key(authorization: str | None) -> str | None:
    """The key in an `Authorization` header; `None` if there is none of this scheme."""
    scheme, _, value = (authorization or "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else None


def unauthorized() -> RequestError:
    return RequestError(401, "a valid API key is needed: Authorization: Bearer KEY", code="invalid_api_key")
