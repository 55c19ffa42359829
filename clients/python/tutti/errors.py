"""All errors that the client raises.

TuttiError
├── BadOption            an option cannot work; the client found it before it sent anything
│   └── BadURL
├── AudioError           audio cannot be read or recorded
├── ConnectError         no session could be opened
│   ├── Unreachable      no connection, or no WebSocket at the other end
│   └── Refused          the server answered with an HTTP status instead of a WebSocket
│       ├── Unauthorized     401: the API key is missing or wrong
│       └── Overloaded       503 or 429: no room, or the key has used what it may; it may say when to try again
├── SessionError         the server ended the session with a fatal `error` event
├── ConnectionLost       the connection ended before `stopped`
├── TimedOut             a wait took longer than its option allows
├── ProtocolError        a message of the server does not follow docs/protocol.md
└── SessionStopped       the application sent audio or `flush` after `stop`
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class TuttiError(Exception):
    """The base of all errors of this package."""

    code: str = "error"
    """The kind of the error, for programs: it is the same in all versions. The message, for people, may change."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by `__init__`, whose arguments may be others: a pool ends with an error that its process cannot hand over.
        return Exception.__new__, (type(self), *self.args), vars(self)


class BadOption(TuttiError):
    """An option cannot work. The client found it before it sent anything."""

    code = "bad_option"

    def __init__(self, option: str, expected: str, got: object) -> None:
        super().__init__(option, expected, got)
        self.option = option
        self.expected = expected
        self.got = got

    def __str__(self) -> str:
        return f"{self.option}: expected {self.expected}, got {_shorten(self.got)}"


class BadURL(BadOption):
    """The URL of the server cannot be used."""

    code = "bad_url"

    def __init__(self, url: str, reason: str) -> None:
        super().__init__("url", "ws://, wss://, http:// or https:// and a host", url)
        self.reason = reason

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.reason})"


class AudioError(TuttiError):
    """Audio cannot be read from `source`, or recorded with it."""

    code = "bad_audio"

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(source, reason)
        self.source = source
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


class ConnectError(TuttiError):
    """Raised when no session could be opened at `url`."""

    code = "connect_failed"

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url = url
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot open a session at {self.url}: {self.reason}"


class Unreachable(ConnectError):
    """There is no connection, or no server of tutti at the other end."""

    code = "unreachable"


class Refused(ConnectError):
    """The server answered with an HTTP status instead of a WebSocket. The names in `headers` are in lower case."""

    code = "refused"

    def __init__(self, url: str, status: int, headers: Mapping[str, str], body: str) -> None:
        super().__init__(url, f"HTTP {status}" + (f", {read_refusal(body)[1]}" if body.strip() else ""))
        self.status = status
        self.headers = headers
        self.body = body


class Unauthorized(Refused):
    """The API key is missing or wrong."""

    code = "unauthorized"

    def __str__(self) -> str:
        return f"{super().__str__()}; the API key is missing or wrong"


class Overloaded(Refused):
    """The server is full, or the key has used what it may.

    `retry_after_s` is None if the server did not say when to try again.
    """

    code = "overloaded"

    def __init__(
        self, url: str, status: int, headers: Mapping[str, str], body: str, retry_after_s: float | None
    ) -> None:
        super().__init__(url, status, headers, body)
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        when = "later" if self.retry_after_s is None else f"in {self.retry_after_s:g} s"
        return f"{super().__str__()}; try again {when}"


class SessionError(TuttiError):
    """The server ended the session with a fatal `error` event. docs/protocol.md lists the values of `code`.

    Audio before `final_until_s` is final. Codes after which another connection may succeed are raised only with the
    option `resume_buffer_s=0`.
    """

    def __init__(self, code: str, message: str, final_until_s: float) -> None:
        super().__init__(code, message, final_until_s)
        self.code = code
        self.message = message
        self.final_until_s = final_until_s

    def __str__(self) -> str:
        return f"the server ended the session: {self.message} ({self.code})"


class ConnectionLost(TuttiError):
    """The connection ended before `stopped`.

    Audio before `final_until_s` is final. A loss is raised if no other connection can help, or with the option
    `resume_buffer_s=0`. To lose and repeat nothing, an application then keeps the audio after that time, connects again
    with `resume=Resume(from_s=session.resume_from_s)`, and sends the audio from `final_until_s` on. It drops the
    segments of each channel that begin at its time in `resume_from_s` or later, because they come again.
    """

    code = "connection_lost"

    def __init__(self, close_code: int, reason: str, final_until_s: float) -> None:
        super().__init__(close_code, reason, final_until_s)
        self.close_code = close_code
        self.reason = reason
        self.final_until_s = final_until_s

    def __str__(self) -> str:
        reason = f", {self.reason}" if self.reason else ""
        return f"the connection was lost (close code {self.close_code}{reason}); final until {self.final_until_s:g} s"


class TimedOut(TuttiError):
    """A wait took too long. `setting` is the name of the option that limits it, `waited_for` what did not come."""

    code = "timed_out"

    def __init__(self, setting: str, limit_s: float, waited_for: str) -> None:
        super().__init__(setting, limit_s, waited_for)
        self.setting = setting
        self.limit_s = limit_s
        self.waited_for = waited_for

    def __str__(self) -> str:
        return f"no {self.waited_for} within {self.limit_s:g} s ({self.setting})"


class ProtocolError(TuttiError):
    """A message of the server is wrong. `field` is the path of the wrong field, such as `segment.words[0].start_s`."""

    code = "protocol_error"

    def __init__(self, field: str, expected: str, got: str) -> None:
        super().__init__(field, expected, got)
        self.field = field
        self.expected = expected
        self.got = got

    def __str__(self) -> str:
        return f"{self.field}: expected {self.expected}, got {self.got}"


class SessionStopped(TuttiError):
    """The application sent audio or `flush` after `stop`."""

    code = "session_stopped"

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} after stop: expected it before, or in a new session"


def read_refusal(body: str) -> tuple[Any, str]:
    """Code (or None) and message of a refusal; a body of another form, such as a proxy's, is shortened."""
    try:
        error = json.loads(body)["error"]
        return error.get("code"), str(error["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, _shorten(body.strip())


def _shorten(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
