"""A jump of the machine's clock changes no session: times are measured by clocks that only go forward.

What needs the time of day is listed here with its reason.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
TIME_OF_DAY = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "localtime"),
    ("time", "gmtime"),
    ("time", "ctime"),
    ("time", "strftime"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}
ALLOWED = {
    "plugins/accounts/keys/commands.py": "when a key expires, as the operator reads and writes it",
    "plugins/accounts/keys/key_directory.py": "whether a key has expired",
    "plugins/accounts/keys/key_records.py": "when a key was made and withdrawn",
    "plugins/accounts/keys/usage_counter.py": "the day of usage",
    "app/publish/webhook.py": "the date in the signature of a request",
    "plugins/carriers/audiohook/endpoint.py": "the age of a signature",
    "plugins/carriers/audiosocket/announcing_endpoint.py": "when an announcement expires",
    "app/dialects/deepgram/endpoint.py": "the date in Deepgram's metadata, and when a token expires",
    "plugins/accounts/keys/usage_endpoint.py": "the days of usage that are shown if none are named",
    "app/dialects/openai/realtime_endpoint.py": "when a client secret expires",
    "plugins/accounts/jobs/callbacks.py": "the date in the signature of a callback",
    "plugins/accounts/jobs/job_store.py": "when jobs were made and are due, as processes with the database agree",
    "plugins/accounts/jobs/s3_spool.py": "the age of recordings, as the object store knows it",
    "plugins/accounts/jobs/spool.py": "the age of recordings, as the file system knows it",
    "app/publish/room_follower.py": "how long the speaker of a room has been gone, as machines with the room agree",
    "app/publish/room_speaker.py": "when a session began and left a room, as machines with the room agree",
    "app/service/auth.py": "whether a client secret has expired",
    "plugins/accounts/jobs/job_service.py": "the day of usage",
    "app/service/key_limits.py": "the day and the month of a quota",
    "app/service/shared_state.py": "the date of the start, in the list of models",
    "app/service/withdrawals.py": "when a withdrawn client secret would have expired",
    "plugins/telemetry/session_spans.py": "when the stages of a window began and ended, in traces",
    "clients/python/tutti/handshake.py": "`Retry-After` as a date",
}


def uses(path: Path) -> Iterator[tuple[str, str]]:
    """The functions of the time of day that a file uses or imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name), attr=attr):
                yield name, attr
            case ast.ImportFrom(module=str(module), names=names):
                yield from ((module, alias.name) for alias in names)
            case _:
                pass


def test_only_what_needs_the_time_of_day_uses_it() -> None:
    paths = [
        path
        for folder in ("app", "engine", "cluster", "plugins", "clients/python")
        for path in (REPOSITORY / folder).rglob("*.py")
    ]
    found = {str(path.relative_to(REPOSITORY)) for path in paths if TIME_OF_DAY.intersection(uses(path))}
    # A plug-in may be missing.
    assert found == {path for path in ALLOWED if REPOSITORY.joinpath(*Path(path).parts[:2]).exists()}


def test_only_what_needs_the_time_of_day_uses_it_in_javascript() -> None:
    """`clock` does in an environment that has no other clock, and the page shows people when something was said."""
    scripts = [*(REPOSITORY / "clients/js/src").rglob("*.ts"), *(REPOSITORY / "app/static").rglob("*.js")]
    found = {path.name for path in scripts if re.search(r"\bDate\b(?!\w*\s*:)", path.read_text())}
    shown = {"exports.js", "keeper.js", "lines.js", "session_text.js", "transcript.js"}
    assert found == {"clock.ts", "clock.js", *shown}
    assert 'typeof performance === "undefined" ? Date.now()' in (REPOSITORY / "clients/js/src/clock.ts").read_text()
