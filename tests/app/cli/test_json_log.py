"""`--log-format json`: each record is one line with one object, whatever is in it."""

import json
import logging
from datetime import datetime
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.app.conftest import Serve
from tests.fakes import FakeTranscriber
from tutti_server.app.cli.json_log import JsonFormatter
from tutti_server.app.cli.processes import set_up_logging
from tutti_server.app.server.plugins import make_settings


def written(record: logging.LogRecord, has_process: bool = False) -> dict[str, Any]:
    """The object of a record, which is one line."""
    line = JsonFormatter(has_process).format(record)
    assert "\n" not in line
    parsed: dict[str, Any] = json.loads(line)
    return parsed


def record(message: str, *values: object, **more: Any) -> logging.LogRecord:
    """A record of a logger called `app.x`."""
    return logging.getLogger("app.x").makeRecord("app.x", logging.INFO, "x.py", 1, message, values, None, **more)


def test_a_record_becomes_an_object() -> None:
    """With the time in UTC, and without what is not known."""
    plain = written(record("hello %r\n", 'a "word"'))
    assert datetime.fromisoformat(plain.pop("time")).utcoffset() is not None
    assert plain == {"level": "info", "logger": "app.x", "message": "hello 'a \"word\"'\n"}


def test_ids_are_fields() -> None:
    """Of requests and sessions. Another id stays where it is."""
    session = written(record("[s_0f] has ended"))
    assert (session["session_id"], session["message"]) == ("s_0f", "has ended")
    request = written(record("[req_1a] failed", extra={"trace": " trace=77"}), has_process=True)
    expected = ("req_1a", "77", "MainProcess", "failed")
    assert tuple(request[name] for name in ("request_id", "trace_id", "process", "message")) == expected
    assert written(record("[job_1] failed"))["message"] == "[job_1] failed"


def test_an_exception_stays_in_its_line() -> None:
    try:
        raise ValueError("no\nsuch")
    except ValueError as error:
        failed = record("failed")
        failed.exc_info = (type(error), error, error.__traceback__)
    assert written(failed)["exception"].endswith("ValueError: no\nsuch")


async def test_lines_of_a_server_have_the_ids_of_their_requests(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A session has both: its own, and the one of the request that has opened it."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    set_up_logging(make_settings({"log_format": "json"}))
    server = await serve(FakeTranscriber())
    async with connect(server.stream) as socket:
        opened = socket.response.headers["x-request-id"] if socket.response else ""
        await socket.send('{"type": "start"}')
        await socket.recv()
        await socket.send('{"type": "stop"}')
        await socket.wait_closed()
    refused = await server.post("/v1/audio/transcriptions")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    of_session = [line for line in lines if "session_id" in line]
    assert of_session and {line["request_id"] for line in of_session} == {opened}
    assert refused.headers["x-request-id"] in {line.get("request_id") for line in lines}
