"""Serves the paths of accounts."""

from starlette.routing import BaseRoute, Route

from tutti_server.plugins.accounts.jobs import endpoint as jobs
from tutti_server.plugins.accounts.keys.usage_endpoint import show_usage


def routes() -> list[BaseRoute]:
    """Every path of the plug-in, and its endpoint."""
    return [
        Route("/v1/usage", show_usage),
        Route("/v1/jobs", jobs.create_job, methods=["POST"]),
        Route("/v1/jobs", jobs.list_jobs, methods=["GET"]),
        Route("/v1/jobs/{id}", jobs.retrieve_job, methods=["GET"]),
        Route("/v1/jobs/{id}", jobs.delete_job, methods=["DELETE"]),
        Route("/v1/jobs/{id}/result", jobs.job_result, methods=["GET"]),
        Route("/v1/jobs/{id}/cancel", jobs.cancel_job, methods=["POST"]),
    ]
