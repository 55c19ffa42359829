"""All errors of the service.

SessionError
├── BadMessage         a message cannot be parsed; the session continues
├── BadStart           an option of `start` is not supported; fatal
├── WrongState         a command is not allowed at this moment
└── LimitExceeded      a limit of pace, size or number is exceeded
    ├── KeyLimitExceeded   an API key has used what it may use
    └── IdleTimeout        a client has sent nothing for too long

SettingsError          the operator's configuration cannot be used; the server does not start
MediaError             audio in a file or container cannot be decoded
RequestError           an HTTP request is refused
"""

import errno

CLOSE_DONE = 1000
"""The session ended as the client asked."""
CLOSE_POLICY = 1008
"""The client broke a rule of the protocol or a limit."""
CLOSE_TOO_BIG = 1009
"""The client sent a message that is too large."""
CLOSE_OUR_FAULT = 1011
"""The server or its engine failed."""
CLOSE_DRAINING = 1012
"""The server is stopping; the client should reconnect to another one."""
CLOSE_OVERLOADED = 1013
"""The service has no room; the client should try again later."""
RESUMABLE_CLOSE_CODES = (CLOSE_OUR_FAULT, CLOSE_DRAINING, CLOSE_OVERLOADED)
"""The ends of a session after which its client may go on in another one."""
CLOSE_CODES = (CLOSE_DONE, CLOSE_POLICY, CLOSE_TOO_BIG, CLOSE_OUR_FAULT, CLOSE_DRAINING, CLOSE_OVERLOADED)

IDLE = "idle"
"""The code of the error, and the reason of the close, of a client that has sent nothing for too long."""

RETRY_AFTER_S = 5
"""How long a client that was refused for lack of room should wait before it tries again, in seconds."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The numbers of errors of the operating system which say that a file finds no room."""


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()
"""What came, for messages, in place of a value that was needed and not sent."""


class SessionError(Exception):
    """Raised for an error that the client gets: a stable code, a sentence, and a close code if the session must end."""

    def __init__(self, code: str, message: str, close_code: int | None = None) -> None:
        super().__init__(code, message, close_code)
        self.code = code
        self.message = message
        self.close_code = close_code

    def __str__(self) -> str:
        return self.message

    @property
    def is_fatal(self) -> bool:
        """Whether this error ends the session."""
        return self.close_code is not None


class BadMessage(SessionError):
    """Raised when a message of the client cannot be parsed. The session continues."""

    def __init__(self, code: str, expected: str, got: object) -> None:
        super().__init__(code, f"expected {expected}, got {shorten(got)}")


class BadStart(SessionError):
    """Raised when the server does not support an option of the start command. The session ends."""

    def __init__(self, field: str, expected: str, got: object) -> None:
        super().__init__("bad_start", f"{field}: expected {expected}, got {shorten(got)}", CLOSE_POLICY)
        self.field = field


class WrongState(SessionError):
    """Raised when the state of the session does not allow a command, such as audio before `start`."""


class LimitExceeded(SessionError):
    """Raised when a client exceeds a limit of pace, size or number."""


class IdleTimeout(LimitExceeded):
    """Raised when a client has sent nothing for too long."""

    def __init__(self, message: str) -> None:
        super().__init__(IDLE, message, CLOSE_POLICY)


class KeyLimitExceeded(LimitExceeded):
    """Raised when an API key has used what it may use. `retry_after_s` says when there may be room again."""

    def __init__(self, code: str, message: str, retry_after_s: int) -> None:
        super().__init__(code, message, CLOSE_OVERLOADED)
        self.retry_after_s = retry_after_s


class SettingsError(Exception):
    """Raised when the operator's configuration cannot be used. The server does not start."""


class TranslationFailed(Exception):
    """A text was not translated, or not in time. The message says why, for people."""


class MediaError(Exception):
    """Raised when audio in a file or container cannot be decoded."""


class RequestError(Exception):
    """Raised when an HTTP request is refused. Holds the status and the fields of OpenAI's error object."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int = RETRY_AFTER_S,
    ) -> None:
        super().__init__(status, message, param, code)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s
        """When to try again, in seconds. Sent with those statuses after which a client may do so."""

    def __str__(self) -> str:
        return self.message


def shorten(value: object, limit: int = 80) -> str:
    """The `repr` of a value, cut to at most `limit` characters for an error message."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
