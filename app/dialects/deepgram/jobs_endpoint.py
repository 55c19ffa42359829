"""Does the jobs that came with a callback: transcribes a recording, and sends the ordinary answer."""

import asyncio
import json
from functools import partial
from typing import IO

from tutti_server.app.dialects.deepgram.common_endpoint import Refusal
from tutti_server.app.dialects.deepgram.endpoint import options_of, transcribe_recording
from tutti_server.app.dialects.deepgram.recordings_endpoint import sha256_of
from tutti_server.app.dialects.http_answers import header_value
from tutti_server.app.errors import BadStart, RequestError
from tutti_server.app.files.uploads import refusing_without_resources
from tutti_server.app.jobs import CallbackMessage, Job, JobDelayed, JobFailed, JobKind, JobResult
from tutti_server.app.service.service import Service


def job_kind(service: Service) -> JobKind:
    """How these jobs are done."""
    return JobKind(work=partial(_work, service), callback=_callback)


async def _work(service: Service, job: Job, file: IO[bytes]) -> JobResult:
    try:
        query = [(name, value) for name, value in job.request.options["query"]]
        options = options_of(service, query)
        with refusing_without_resources():
            sha256 = await asyncio.to_thread(sha256_of, file)
            content = await transcribe_recording(service, options, job.id, file, sha256)
    except BadStart as error:
        raise JobFailed("INVALID_QUERY_PARAMETER", error.message) from error
    except RequestError as error:
        # This machine lacks something at present: room on its disk, open files, memory.
        raise JobDelayed(error.message) from error
    except Refusal as error:
        if error.status == 429 or error.status >= 500:
            raise JobDelayed(error.message) from error
        raise JobFailed(error.code, error.message) from error
    audio_s = json.loads(content)["metadata"]["duration"]
    return JobResult(content=content.encode(), media_type="application/json", audio_s=audio_s)


def _callback(job: Job, result: JobResult | None) -> CallbackMessage:
    """The ordinary answer, or the ordinary error. `dg-token` names the key, and is not the key."""
    headers = {"dg-request-id": job.id, "dg-token": header_value(job.account)}
    if result is not None:
        return CallbackMessage(body=result.content, headers=headers)
    error = {"err_code": job.error_code, "err_msg": job.error, "request_id": job.id}
    return CallbackMessage(body=json.dumps(error, ensure_ascii=False).encode(), headers=headers)
