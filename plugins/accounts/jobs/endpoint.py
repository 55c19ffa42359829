"""The HTTP endpoints of jobs, which take the same forms as the transcription of files."""

from collections.abc import Awaitable, Callable, Iterable
from typing import IO, TYPE_CHECKING, TypeVar

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from tutti_server.app.dialects.http_answers import IGNORED_HEADER, WARNINGS_HEADER, header_value
from tutti_server.app.dialects.openai.form import text_fields
from tutti_server.app.errors import LimitExceeded, RequestError
from tutti_server.app.files.uploads import Upload, refusing_without_resources
from tutti_server.app.service.auth import Client, header_key
from tutti_server.app.service.client_connections import admit
from tutti_server.app.service.http_errors import authorized, no_room_for_upload
from tutti_server.app.service.service import Service
from tutti_server.plugins.accounts.accounts import accounts_of, check_parameters
from tutti_server.plugins.accounts.jobs import wire
from tutti_server.plugins.accounts.jobs.spool import is_job_id
from tutti_server.plugins.accounts.jobs.work import options_of

if TYPE_CHECKING:
    from tutti_server.plugins.accounts.jobs.job_service import JobService

_Found = TypeVar("_Found")


async def create_job(request: HttpRequest) -> Response:
    """Take in a recording, or the address of one. The answer comes at once; `202`, or `200` for a job sent before."""
    service: Service = request.app.state.service
    upload = Upload(request, service.settings)
    try:
        jobs, client = _admitted(request)
        key = wire.idempotency_key(request.headers.get("idempotency-key"))
        async with service.access.limits.upload(client.key, "job"):
            with service.admission.upload(service.access.holder(client)):
                admit(request.scope)
                form = await service.admission.drain_limit.unless_over(upload.form())
                try:
                    return await _created(service, jobs, form, client, key, request.query_params)
                finally:
                    await form.close()
    except RequestError:
        await upload.discard(service.admission.drain_limit)
        raise
    except LimitExceeded as error:
        await upload.discard(service.admission.drain_limit)
        raise no_room_for_upload(error) from error


async def _created(
    service: Service, jobs: "JobService", form: FormData, client: Client, key: str | None, parameters: Iterable[str]
) -> Response:
    """The answer to a form. Parameters of the address have no effect, and are named."""
    file = _file(form)
    fields = text_fields(form.multi_items())
    wanted, task, transcription = wire.parse_request(fields)
    options = options_of(service, task, transcription)
    if bool(file) == bool(wanted.url):
        got = "both" if file else "none"
        raise RequestError(400, f"file: expected either an audio file or url, got {got}", "file")
    if wanted.callback_url and not jobs.signs:
        raise RequestError(400, "callback: not offered, as its operator has not set TUTTI_JOB_SECRET", "callback")
    jobs.check_addresses(wanted)
    with refusing_without_resources():
        job, is_new = await jobs.submit(client.account, client.key, wanted, file, key)
    headers = {"location": f"/v1/jobs/{job.id}"}
    if ignored := sorted({*options.ignored, *parameters}):
        headers[IGNORED_HEADER] = header_value(", ".join(ignored))
    return JSONResponse(wire.job_json(job), 202 if is_new else 200, headers)


async def list_jobs(request: HttpRequest) -> Response:
    """The jobs of this key, the newest first."""
    jobs, client = _admitted(request)
    check_parameters(request, ("limit", "after", "status"))
    query = request.query_params
    n = wire.limit(query.get("limit"))
    state = wire.listed_state(query.get("status"))
    after = await _found(jobs.find, query["after"], client, "after") if query.get("after") else None
    found = await jobs.listed(client.account, n + 1, after, state)
    data = [wire.job_json(each) for each in found[:n]]
    return JSONResponse({"object": "list", "data": data, "has_more": len(found) > n})


async def retrieve_job(request: HttpRequest) -> Response:
    """What has become of a job."""
    jobs, client = _admitted(request)
    return JSONResponse(wire.job_json(await _found(jobs.find, request.path_params["id"], client)))


async def job_result(request: HttpRequest) -> Response:
    """What a job has made, in the format that its client has chosen."""
    jobs, client = _admitted(request)
    job = await _found(jobs.find, request.path_params["id"], client)
    result = await jobs.result(job.id) if job.state == "done" else None
    if result is None:
        raise RequestError(409, f"job: expected one that is done, got one that is {job.state}", "id", "not_done")
    headers = {WARNINGS_HEADER: result.warnings} if result.warnings else {}
    return Response(result.content, 200, headers, result.media_type)


async def cancel_job(request: HttpRequest) -> Response:
    """Cancel a job. One that has ended stays as it is."""
    jobs, client = _admitted(request)
    return JSONResponse(wire.job_json(await _found(jobs.cancel, request.path_params["id"], client)))


async def delete_job(request: HttpRequest) -> Response:
    """Forget a job with its recording and its result, whatever its state."""
    jobs, client = _admitted(request)
    id_ = request.path_params["id"]
    await _found(jobs.remove, id_, client)
    return JSONResponse({"id": id_, "object": "job", "deleted": True})


def _admitted(request: HttpRequest) -> "tuple[JobService, Client]":
    """The jobs of the service and the client. Refuses what does not depend on the body."""
    service: Service = request.app.state.service
    client = authorized(service.access.client(header_key(request.headers), "jobs"))
    jobs = accounts_of(request).jobs
    if jobs is None:
        message = "this server takes in no jobs; its operator can set TUTTI_JOBS"
        raise RequestError(404, message, code="no_jobs")
    return jobs, client


async def _found(
    find: Callable[[str, str], Awaitable[_Found | None]], id_: str, client: Client, param: str = "id"
) -> _Found:
    """What `find` makes of a job of this client, which is named by the parameter `param`."""
    found = await find(id_, client.account) if is_job_id(id_) else None
    if not found:
        raise RequestError(404, f"{param}: expected a job of this key, got {id_[:80]!r}", param, "job_not_found")
    return found


def _file(form: FormData) -> IO[bytes] | None:
    files = form.getlist("file")
    if not files:
        return None
    if len(files) == 1 and isinstance(files[0], UploadFile):
        return files[0].file
    got = "text" if len(files) == 1 else f"{len(files)} values"
    raise RequestError(400, f"file: expected an audio file, got {got}", "file")
