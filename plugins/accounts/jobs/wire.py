"""Jobs on the wire: forms with the fields of `/v1/audio/transcriptions` to requests, jobs to JSON."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, get_args

from tutti_server.app.dialects.openai.form import Form, bad_value
from tutti_server.app.errors import RequestError, shorten
from tutti_server.app.jobs import STATES, CallbackMessage, Job, JobResult, Request, State
from tutti_server.app.numbers import read_integer
from tutti_server.engine import api

KIND = "openai"
"""The name of these jobs in the database."""
OWN_FIELDS = ("url", "task", "callback")
"""The fields that are not those of a transcription."""
MAX_URL_CHARS = 2000
MAX_KEY_CHARS = 200
MAX_LISTED, DEFAULT_LISTED = 100, 20

TASKS: tuple[api.Task, ...] = get_args(api.Task)


def parse_request(fields: Iterable[tuple[str, str]]) -> tuple[Request, api.Task, list[tuple[str, str]]]:
    """What a form asks for.

    Returns:
        The request, its task, and the fields that are options of the transcription.

    Raises:
        RequestError: a value is wrong.
    """
    fields = list(fields)
    own = Form((name, value) for name, value in fields if name in OWN_FIELDS)
    options = [(name, value) for name, value in fields if name not in OWN_FIELDS]
    if Form((name, value) for name, value in options if name == "stream").boolean("stream"):
        message = "stream: expected false, as the result of a job is fetched when it is done"
        raise RequestError(400, message, "stream", "unsupported_value")
    named = own.text("task") or "transcribe"
    task = next((each for each in TASKS if each == named), None)
    if task is None:
        raise bad_value("task", f"one of {', '.join(TASKS)}", named)
    url, callback = (_address(own, name) for name in ("url", "callback"))
    request = Request(kind=KIND, options={"task": task, "fields": options}, url=url, callback_url=callback)
    return request, task, options


def _address(form: Form, name: str) -> str:
    value = (form.text(name) or "").strip()
    if len(value) > MAX_URL_CHARS:
        raise RequestError(400, f"{name}: expected at most {MAX_URL_CHARS} characters, got {len(value)}", name)
    return value


def idempotency_key(value: str | None) -> str | None:
    """The client's own name for a job, from its header."""
    if value is not None and not 0 < len(value) <= MAX_KEY_CHARS:
        message = f"Idempotency-Key: expected 1 to {MAX_KEY_CHARS} characters, got {len(value)}"
        raise RequestError(400, message, "Idempotency-Key")
    return value


def listed_state(value: str | None) -> State | None:
    """Which jobs are to be listed; `None` for all."""
    for state in STATES:
        if state == value:
            return state
    if value:
        raise RequestError(400, f"status: expected one of {', '.join(STATES)}, got {shorten(value)}", "status")
    return None


def limit(value: str | None) -> int:
    """How many jobs are to be listed."""
    if not value:
        return DEFAULT_LISTED
    n = read_integer(value, 1, MAX_LISTED)
    if n is None:
        raise RequestError(400, f"limit: expected 1 to {MAX_LISTED}, got {shorten(value)}", "limit")
    return n


def job_json(job: Job) -> dict[str, Any]:
    """A job as its owner sees it."""
    shown: dict[str, Any] = {
        "id": job.id,
        "object": "job",
        "status": job.state,
        "created_at": _moment(job.created),
        "started_at": _moment(job.started),
        "ended_at": _moment(job.ended),
        "attempts": job.n_attempts,
        "audio_s": job.audio_s,
        "error": {"code": job.error_code, "message": job.error} if job.state == "failed" else None,
        "result_url": f"/v1/jobs/{job.id}/result" if job.state == "done" else None,
    }
    return shown


def callback_message(job: Job, result: JobResult | None) -> CallbackMessage:
    """The message about a job that has ended. It is the same each time, so receivers know a repetition by its id."""
    message = {
        "id": f"evt_{job.id}",
        "type": f"job.{job.state}",
        "created_at": _moment(job.ended),
        "job": job_json(job),
    }
    return CallbackMessage(body=json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode())


def _moment(at_s: float | None) -> str | None:
    """A time in seconds since 1970 as ISO 8601, in UTC."""
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
