"""What can go wrong in a session, as clients are told it.

SessionError
├── BadMessage         a message that cannot be read; the session goes on
├── BadStart           a value in `start` that cannot be honoured; fatal
├── WrongState         a command at the wrong moment
└── LimitExceeded      a promise about pace or size was broken; fatal

SettingsError          the operator's configuration cannot be used; the start fails
MediaError             an uploaded file cannot be decoded
RequestError           an HTTP request is refused
"""

CLOSE_DONE = 1000
CLOSE_POLICY = 1008
CLOSE_TOO_BIG = 1009
CLOSE_OUR_FAULT = 1011
CLOSE_DRAINING = 1012
CLOSE_OVERLOADED = 1013
CLOSE_CODES = (CLOSE_DONE, CLOSE_POLICY, CLOSE_TOO_BIG, CLOSE_OUR_FAULT, CLOSE_DRAINING, CLOSE_OVERLOADED)

RETRY_AFTER_S = 5
"""When a client that was refused for want of room is told to try again."""


class SessionError(Exception):
    """Base: carries a stable code, a sentence, and the close code if the session cannot go on."""

    def __init__(self, code: str, message: str, close_code: int | None = None) -> None:
        super().__init__(code, message, close_code)
        self.code = code
        self.message = message
        self.close_code = close_code

    def __str__(self) -> str:
        return self.message

    @property
    def is_fatal(self) -> bool:
        return self.close_code is not None


class BadMessage(SessionError):
    def __init__(self, code: str, expected: str, got: object) -> None:
        super().__init__(code, f"expected {expected}, got {shorten(got)}")


class BadStart(SessionError):
    def __init__(self, field: str, expected: str, got: object) -> None:
        super().__init__("bad_start", f"{field}: expected {expected}, got {shorten(got)}", CLOSE_POLICY)
        self.field = field


class WrongState(SessionError):
    pass


class LimitExceeded(SessionError):
    pass


class SettingsError(Exception):
    pass


class MediaError(Exception):
    pass


class RequestError(Exception):
    """An HTTP request is refused: the status, and the fields of OpenAI's error object."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(status, message, param, code)
        self.status = status
        self.message = message
        self.param = param
        self.code = code

    def __str__(self) -> str:
        return self.message


def shorten(value: object, limit: int = 80) -> str:
    """`repr` of what came, cut to a length fit for a message."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
