"""The description of the paths of accounts."""

from collections.abc import Mapping
from typing import Any

from tutti_server.app.jobs import STATES
from tutti_server.app.server.openapi import (
    ANY_OBJECT,
    BOOLEAN,
    FORM,
    IGNORED,
    INTEGER,
    NUMBER,
    TEXT,
    TEXT_OR_NULL,
    UPLOAD_REFUSALS,
    WARNED,
    Schema,
    answer,
    header,
    list_of,
    object_of,
    operation,
    query,
    with_examples,
)
from tutti_server.plugins.accounts.jobs.wire import MAX_LISTED, TASKS
from tutti_server.plugins.accounts.openapi_examples import ANSWERS, REQUESTS

DAY: Schema = {"type": "string", "format": "date"}
TIME: Schema = {"type": "string", "format": "date-time"}
TIME_OR_NULL: Schema = {"type": ["string", "null"], "format": "date-time"}
USED = object_of(
    {
        "key_id": TEXT,
        "key": TEXT_OR_NULL,
        "day": DAY,
        "kind": {"enum": ["live", "file", "job"]},
        "audio_s": NUMBER,
        "n": INTEGER,
    }
)
KEY_USAGE = {"title": "Usage"} | object_of(
    {
        "object": {"const": "list"},
        "from": DAY,
        "to": DAY,
        "data": list_of(USED),
    }
)
JOB = {"title": "Job"} | object_of(
    {
        "id": TEXT,
        "object": {"const": "job"},
        "status": {"enum": list(STATES)},
        "created_at": TIME,
        "started_at": TIME_OR_NULL,
        "ended_at": TIME_OR_NULL,
        "attempts": INTEGER,
        "audio_s": {"type": ["number", "null"]},
        "error": {"anyOf": [object_of({"code": TEXT_OR_NULL, "message": TEXT_OR_NULL}), {"type": "null"}]},
        "result_url": TEXT_OR_NULL,
    }
)
JOB_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
JOB_FORM = {
    **FORM,
    "required": [],
    "properties": {
        **{name: field for name, field in FORM["properties"].items() if name != "stream"},
        "url": {"type": "string", "description": "Where the recording is, in place of `file`."},
        "task": {"enum": list(TASKS), "default": "transcribe"},
        "callback": {"type": "string", "description": "Where the end of the job is reported."},
    },
}


def _json(description: str, schema: Schema) -> dict[str, Schema]:
    """The answers of an operation whose success has one form, JSON."""
    return {"200": answer(description, application_json=schema)}


def _job_operation(name: str, summary: str, answers: dict[str, Schema], **more: Any) -> Schema:
    """One operation on jobs. A server without jobs, or without this one, answers 404."""
    refusals = {"404": "The key has no such job, or this server takes in no jobs.", **more.pop("refusals", {})}
    parameters = more.pop("parameters", [JOB_ID])
    return operation(name, summary, answers, refusals=refusals, parameters=parameters, **more)


JOB_PATHS: dict[str, dict[str, Schema]] = {
    "/v1/jobs": {
        "post": _job_operation(
            "createJob",
            "Send in a recording that is transcribed later.",
            {
                status: answer(
                    why, {"location": header("The job.", TEXT), "x-tutti-ignored": IGNORED}, application_json=JOB
                )
                for status, why in (("202", "The job."), ("200", "The job that was sent in with this key before."))
            },
            refusals={
                **UPLOAD_REFUSALS,
                "404": "This server takes in no jobs, or has other models.",
                "409": "The idempotency key was used for another job.",
            },
            parameters=[{"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "minLength": 1}}],
            requestBody={"required": True, "content": {"multipart/form-data": {"schema": JOB_FORM}}},
        ),
        "get": _job_operation(
            "listJobs",
            "The jobs of the key, the newest first.",
            _json(
                "A page of jobs.", object_of({"object": {"const": "list"}, "data": list_of(JOB), "has_more": BOOLEAN})
            ),
            parameters=[
                query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LISTED}, "The most jobs of a page."),
                query("after", TEXT, "The id of the last job of the page before."),
                query("status", {"enum": list(STATES)}, "Only jobs with this status."),
            ],
        ),
    },
    "/v1/jobs/{id}": {
        "get": _job_operation("retrieveJob", "A job.", _json("The job.", JOB)),
        "delete": _job_operation(
            "deleteJob",
            "Forget a job with its recording and its result.",
            _json("It is forgotten.", object_of({"id": TEXT, "object": {"const": "job"}, "deleted": BOOLEAN})),
        ),
    },
    "/v1/jobs/{id}/result": {
        "get": _job_operation(
            "jobResult",
            "What a job has made.",
            {
                "200": answer(
                    "The transcript, in the format of the job.",
                    {"x-tutti-warnings": WARNED},
                    application_json=ANY_OBJECT,
                    text_plain=TEXT,
                    text_vtt=TEXT,
                )
            },
            refusals={"409": "The job is not done."},
        )
    },
    "/v1/jobs/{id}/cancel": {"post": _job_operation("cancelJob", "Cancel a job.", _json("The job.", JOB))},
}


USAGE_PATHS: dict[str, dict[str, Schema]] = {
    "/v1/usage": {
        "get": operation(
            "usage",
            "How much audio the key has used, or all keys have used, by day and kind.",
            _json("What was used.", KEY_USAGE),
            refusals={"404": "There is no such key, or usage is not counted."},
            parameters=[
                query("from", DAY, "The first day, in UTC. Default: the first of the month of `to`."),
                query("to", DAY, "The last day, in UTC. Default: today."),
                query("key", TEXT, "The name or the id of a key. Another one than the own needs the scope `usage`."),
            ],
        )
    },
}


def _described(tag: str, paths: Mapping[str, Mapping[str, Schema]]) -> dict[str, dict[str, Schema]]:
    return {
        path: {
            method: with_examples(each, REQUESTS.get(each["operationId"]), ANSWERS.get(each["operationId"]))
            | {"tags": [tag]}
            for method, each in operations.items()
        }
        for path, operations in paths.items()
    }


PATHS = _described("Jobs", JOB_PATHS) | _described("Usage", USAGE_PATHS)
"""The paths of accounts."""
