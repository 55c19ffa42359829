"""Jobs: recordings that are transcribed later. A plug-in keeps them; this is what dialects and it know of one."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Literal, get_args

State = Literal["queued", "running", "done", "failed", "cancelled"]
"""How far a job is. queued: it waits for a gateway. running: a gateway works on it. All others are final."""
STATES: tuple[State, ...] = get_args(State)
Step = Literal["fetch", "decode"]
"""What a gateway does with a job: fetch its recording from an address into the spool; decode a recording."""
CallbackMethod = Literal["POST", "PUT"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the client of a job wants."""

    kind: str
    """The protocol in which the job came, by the name of its `JobKind`."""
    options: dict[str, Any]
    """The options as they came; the kind has checked them, and reads them again when the job is worked on."""
    url: str = ""
    """The address of the recording; empty where it was sent in. It is sealed in the database, as the callback is."""
    callback_url: str = field(default="", repr=False)
    """The address to which the end of the job is reported; empty for none. It may hold a password."""
    callback_method: CallbackMethod = "POST"

    @property
    def options_json(self) -> str:
        """The options as they are kept."""
        return json.dumps(self.options, ensure_ascii=False, sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job, as the database knows it. Times are in seconds since 1970."""

    id: str
    """The id of the job, which cannot be guessed."""
    owner: str
    """Who gave the job, and alone sees it. It holds no key."""
    account: str
    """The account whose audio it is: see `usage_account`."""
    request: Request
    state: State
    created: float
    started: float | None
    """When it was first worked on."""
    ended: float | None
    n_attempts: int
    audio_s: float | None
    """The length of the recording in seconds, once it is done; of all its tracks together, if all were asked for."""
    error_code: str | None
    error: str | None
    """The sentence that says why the job has failed."""
    has_audio: bool
    """Whether its recording is in the spool: from the beginning, or since it was fetched."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing changes any more."""
        return self.state not in ("queued", "running")

    @property
    def may_have_audio(self) -> bool:
        """Whether a recording may be in the spool. A gateway that died may have fetched one without noting it."""
        return self.has_audio or bool(self.request.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What a job has made: the body of the answer that its client waits for."""

    content: bytes
    media_type: str
    audio_s: float
    warnings: str = ""
    """The header with the warnings of the recording; empty if there are none."""


class JobFailed(Exception):
    """A job cannot be done, and could not if it were tried again."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class JobDelayed(Exception):
    """A job cannot be done at present, for a reason that may pass."""

    def __init__(self, message: str, *, counts: bool = True, is_costly: bool = False) -> None:
        """Say why.

        Args:
            counts: whether this was one of the job's attempts.
            is_costly: whether the next attempt fetches the recording again, so that the waits must grow.
        """
        super().__init__(message)
        self.counts = counts
        self.is_costly = is_costly


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackMessage:
    """What is sent to the address of a callback."""

    body: bytes
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """What a protocol does with its jobs."""

    work: Callable[[Job, IO[bytes]], Awaitable[JobResult]]
    """Transcribes a recording. Raises `JobFailed` or `JobDelayed`; may be cancelled."""
    callback: Callable[[Job, JobResult | None], CallbackMessage]
    """The message about a job that has ended; the result is `None` for one that has failed."""
