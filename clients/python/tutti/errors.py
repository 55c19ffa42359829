"""Everything the client raises.

TuttiError
├── BadOption            an option that cannot work, found before anything is sent
│   └── BadURL
├── AudioError           audio that cannot be read or recorded
├── ConnectError         no session could be opened
│   ├── Unreachable      no connection, or no WebSocket at the other end
│   └── Refused          an HTTP status instead of a WebSocket
│       ├── Unauthorized     401: the API key is missing or wrong
│       └── Overloaded       503: no room; says when to try again
├── SessionError         a fatal `error` event from the server
├── ConnectionLost       the connection ended before `stopped`
├── TimedOut             a wait took longer than the setting that bounds it
├── ProtocolError        a message from the server that is not as docs/protocol.md says
└── SessionStopped       audio or `flush` after `stop`
"""

from __future__ import annotations

from collections.abc import Mapping


class TuttiError(Exception):
    """Base of all errors of this package. `code` is stable; the sentence is not."""

    code: str = "error"


class BadOption(TuttiError):
    code = "bad_option"

    def __init__(self, option: str, expected: str, got: object) -> None:
        super().__init__(option, expected, got)
        self.option = option
        self.expected = expected
        self.got = got

    def __str__(self) -> str:
        return f"{self.option}: expected {self.expected}, got {_shorten(self.got)}"


class BadURL(BadOption):
    code = "bad_url"

    def __init__(self, url: str, reason: str) -> None:
        super().__init__("url", "ws://, wss://, http:// or https:// and a host", url)
        self.reason = reason

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.reason})"


class AudioError(TuttiError):
    code = "bad_audio"

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(source, reason)
        self.source = source
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


class ConnectError(TuttiError):
    """No session could be opened at `url`."""

    code = "connect_failed"

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url = url
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot open a session at {self.url}: {self.reason}"


class Unreachable(ConnectError):
    code = "unreachable"


class Refused(ConnectError):
    """The server answered with an HTTP status; `headers` has lower-case names."""

    code = "refused"

    def __init__(self, url: str, status: int, headers: Mapping[str, str], body: str) -> None:
        super().__init__(url, f"HTTP {status}" + (f", {_shorten(body.strip())}" if body.strip() else ""))
        self.status = status
        self.headers = headers
        self.body = body


class Unauthorized(Refused):
    code = "unauthorized"

    def __str__(self) -> str:
        return f"{super().__str__()}; the API key is missing or wrong"


class Overloaded(Refused):
    """No room for another session. `retry_after_s` is None when the server did not say."""

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
    """A fatal `error` event; `code` is the event's, one of the table in docs/protocol.md.

    Audio before `final_until_s` is done: to go on elsewhere (`draining`), resume from there.
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

    Audio before `final_until_s` is done. Whoever has kept the audio since then can connect again with
    `resume=Resume(from_s=session.resume_from_s)`, send from there, and lose and repeat nothing. Segments that begin
    at or after `final_until_s` will come again: drop them.
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
    """`setting` names the bound that was reached, `waited_for` what did not come."""

    code = "timed_out"

    def __init__(self, setting: str, limit_s: float, waited_for: str) -> None:
        super().__init__(setting, limit_s, waited_for)
        self.setting = setting
        self.limit_s = limit_s
        self.waited_for = waited_for

    def __str__(self) -> str:
        return f"no {self.waited_for} within {self.limit_s:g} s ({self.setting})"


class ProtocolError(TuttiError):
    """`field` is a path such as `segment.words[0].start_s`."""

    code = "protocol_error"

    def __init__(self, field: str, expected: str, got: str) -> None:
        super().__init__(field, expected, got)
        self.field = field
        self.expected = expected
        self.got = got

    def __str__(self) -> str:
        return f"{self.field}: expected {self.expected}, got {self.got}"


class SessionStopped(TuttiError):
    code = "session_stopped"

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} after stop: expected it before, or in a new session"


def _shorten(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
