"""A call that a telephone system streams: its description, the sink for its events, and the options of its session."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, get_args

from tutti_server.app.dialects.checks import Check, integer_from, is_boolean, text_up_to, understood
from tutti_server.app.dialects.json_text import write_object
from tutti_server.app.dialects.limits import MAX_PROMPT_CHARS, MAX_SILENCE_MS, MIN_SILENCE_MS
from tutti_server.app.errors import BadStart
from tutti_server.app.languages import LOCK
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands, events
from tutti_server.engine import api
from tutti_server.engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS

START_TIMEOUT_S = 10.0
"""How long a stream may wait before the message that describes its call, in seconds."""
TASKS = get_args(api.Task)
MAX_ID_CHARS = 100
MAX_PARAMETERS = 50
MAX_PARAMETER_CHARS = 1000
"""The longest name and value of a parameter that is passed on to subscribers, in characters."""
OPTIONS = ("model", "language", "languages", "task", "prompt", "hotwords", "words", "interim", "silence_ms")
"""Parameters that are options of the session. The server passes all others on to subscribers."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call, as described when it begins."""

    sid: str
    """The id by which subscribers know the call."""
    stream_sid: str
    """The id of this stream of it."""
    tracks: tuple[str, ...]
    """The names of the session's channels, in order."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The parameters of the caller, without options of the session."""


class CallSink(Protocol):
    """Receives the events of one call. No method may block."""

    def begin(self, call: Call) -> None:
        """A call begins.

        Raises:
            SessionError: the call is refused.
        """
        ...

    def publish(self, event: events.Event | events.Reply) -> None:
        """Pass on an event of the call. An event before `begin` says why there is no call."""
        ...


TRACK = "track"
"""The parameter that names the side of a stream that has one side of a call."""
SIDES = ("inbound", "outbound")


def side_of(parameters: Mapping[str, str]) -> str:
    """The side that a stream of one side has, by its parameter `track`.

    Raises:
        BadStart: it is no side.
    """
    side = given(parameters, TRACK, SIDES[0])
    if side not in SIDES:
        raise BadStart(TRACK, " or ".join(SIDES), side)
    return side


def parameters_in(field_name: str, value: object) -> dict[str, str]:
    """The parameters of a call, from an object in a message.

    Raises:
        BadStart: a value is no text. The error names the parameter and shows no value, which may be the API key.
    """
    wrong = [str(name) for name, each in value.items() if not isinstance(each, str)] if isinstance(value, dict) else []
    if not isinstance(value, dict) or wrong:
        got = f"other values of {', '.join(wrong)}" if wrong else type(value).__name__
        raise BadStart(field_name, "an object with values of text", got)
    return value


def given(parameters: Mapping[str, str], name: str, default: str) -> str:
    """The value of a parameter; the default where it is missing or empty, as from a template without a value."""
    return parameters.get(name, "").strip() or default


def merged(*sources: Mapping[str, str]) -> dict[str, str]:
    """The parameters of a call from several sources. The later one wins, but an empty text is no value."""
    made: dict[str, str] = {}
    for source in sources:
        made |= {name: value for name, value in source.items() if value.strip() or name not in made}
    return made


def own_parameters(parameters: Mapping[str, str], known: tuple[str, ...] = ()) -> dict[str, str]:
    """The parameters that subscribers receive.

    Args:
        known: those that its dialect interprets, in addition to the options of the session.

    Raises:
        BadStart: there are too many, or one is too long.
    """
    own = {name: value for name, value in parameters.items() if name not in (*OPTIONS, *known)}
    if len(own) > MAX_PARAMETERS:
        raise BadStart("parameters", f"at most {MAX_PARAMETERS}", len(own))
    for name, value in own.items():
        if max(len(name), len(value)) > MAX_PARAMETER_CHARS:
            raise BadStart("parameters", f"names and values of at most {MAX_PARAMETER_CHARS} characters", name)
    return own


def call_id(field_name: str, value: object) -> str:
    """Check the id of a call or of a stream.

    Raises:
        BadStart: it would not fit into one line of the log.
    """
    # Ids stand in lines of the log, of which a client must not make two.
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= MAX_ID_CHARS
        or not (value.isascii() and value.isprintable())
    ):
        raise BadStart(field_name, f"1 to {MAX_ID_CHARS} printable ASCII characters", value)
    return value


def passed_on(kind: str, /, **fields: Any) -> events.Reply:
    """A message to subscribers about something that happened on the call, which is no event of the session."""
    return events.Reply(write_object({"type": kind, **fields}))


def start_command(parameters: Mapping[str, str], audio: AudioFormat) -> commands.Start:
    """The session's start, with the options among the parameters of a call.

    Raises:
        BadStart: the value of an option is not valid.
    """
    default = commands.Start()
    # A template whose value is missing gives an empty text, as a form does.
    given = {name: value for name, value in parameters.items() if value.strip()}

    def option(name: str, expected: str, is_valid: Check, default: Any) -> Any:
        if name not in given:
            return default
        value = understood(given[name], is_valid)
        if not is_valid(value):
            raise BadStart(name, expected, given[name])
        return value

    silence_expected = f"a whole number from {MIN_SILENCE_MS} to {MAX_SILENCE_MS}"
    prompt_expected = f"at most {MAX_PROMPT_CHARS} characters"
    language = given.get("language")
    task = option("task", " or ".join(TASKS), TASKS.__contains__, default.task)
    silence_ms = option("silence_ms", silence_expected, integer_from(MIN_SILENCE_MS, MAX_SILENCE_MS), None)
    return commands.Start(
        audio=audio,
        model=given.get("model"),
        language=None if language == LOCK else language,
        languages=_listed(given.get("languages", "")),
        locks_language=language == LOCK,
        task="translate" if task == "translate" else "transcribe",
        interim=option("interim", "true or false", is_boolean, default.interim),
        # Without a silence the service chooses.
        endpointing=commands.Endpointing(silence_ms=silence_ms) if silence_ms else commands.Endpointing(mode=None),
        prompt=option("prompt", prompt_expected, text_up_to(MAX_PROMPT_CHARS), ""),
        hotwords=_hotwords(given.get("hotwords", "")),
        words=option("words", "true or false", is_boolean, default.words),
    )


def _hotwords(text: str) -> tuple[str, ...]:
    hotwords = _listed(text)
    if len(hotwords) > MAX_HOTWORDS or any(len(word.encode()) > MAX_HOTWORD_BYTES for word in hotwords):
        expected = f"at most {MAX_HOTWORDS} of at most {MAX_HOTWORD_BYTES} bytes, separated by commas"
        raise BadStart("hotwords", expected, text)
    return hotwords


def _listed(text: str) -> tuple[str, ...]:
    return tuple(word for each in text.split(",") if (word := each.strip()))
