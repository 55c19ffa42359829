"""What each protocol does with its jobs."""

from contextlib import AbstractAsyncContextManager, nullcontext

from tutti_server.app.dialects.deepgram import jobs_endpoint as deepgram
from tutti_server.app.dialects.deepgram import recordings_endpoint
from tutti_server.app.service.service import Service
from tutti_server.plugins.accounts.jobs import endpoint as jobs_endpoint
from tutti_server.plugins.accounts.jobs import wire as jobs_wire


def doing_jobs(service: Service) -> AbstractAsyncContextManager[None]:
    """Does the jobs of a service while the context is open, if it takes any."""
    if service.jobs is None:
        return nullcontext()
    kinds = {jobs_wire.KIND: jobs_endpoint.job_kind(service), recordings_endpoint.KIND: deepgram.job_kind(service)}
    return service.jobs.running(kinds)
