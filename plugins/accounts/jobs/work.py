"""Does the jobs that came to `/v1/jobs`: transcribes a recording as `/v1/audio/transcriptions` does."""

from dataclasses import replace
from functools import partial
from typing import IO

from tutti_server.app.dialects.openai.files_endpoint import whole_answer
from tutti_server.app.dialects.openai.files_wire import FileOptions, parse_options
from tutti_server.app.dialects.openai.form import Form
from tutti_server.app.errors import RequestError, shorten
from tutti_server.app.jobs import Job, JobDelayed, JobFailed, JobKind, JobResult
from tutti_server.app.service.service import Service
from tutti_server.engine import api
from tutti_server.plugins.accounts.jobs import wire


def job_kind(service: Service) -> JobKind:
    """How these jobs are done."""
    return JobKind(work=partial(_work, service), callback=wire.callback_message)


async def _work(service: Service, job: Job, file: IO[bytes]) -> JobResult:
    try:
        fields = [(name, value) for name, value in job.request.options["fields"]]
        options = options_of(service, job.request.options["task"], fields)
        return await whole_answer(service, file, options, job.id)
    except RequestError as error:
        if error.status == 429 or error.status >= 500:
            raise JobDelayed(error.message) from error
        raise JobFailed(error.code or "invalid_request", error.message) from error


def options_of(service: Service, task: api.Task, fields: list[tuple[str, str]]) -> FileOptions:
    """The options of a transcription that this service can do.

    Raises:
        RequestError: it cannot.
    """
    info = service.models.requested(Form(fields).text("model"))
    if task not in info.tasks:
        message = f"task: expected one that {info.name} can do, got {task}"
        raise RequestError(400, message, "task", "unsupported_task")
    options = parse_options(fields, task, info.languages, service.speaker_model is not None)
    options = replace(options, model=info.name)
    language = options.decoding.language
    if language is not None and language not in info.languages:
        known = ", ".join(info.languages) or "none, as it knows one only"
        message = f"language: expected one of the model's languages ({known}), got {shorten(language)}"
        raise RequestError(400, message, "language")
    return options
