"""A gateway as a replica of a Serve deployment: the same ASGI application as everywhere, behind Serve's proxies."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import Context
from functools import partial
from typing import Any

import ray
from prometheus_client.core import Metric
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp, Receive, Scope, Send

from tutti_server.app.cli.processes import set_up_logging
from tutti_server.app.server.descriptors import reserve_descriptors
from tutti_server.app.server.main import build_app, drain
from tutti_server.app.server.plugins import installed_plugins
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import AdmissionCounter, SharedState
from tutti_server.plugins.ray import membership
from tutti_server.plugins.ray.fleet import Entry
from tutti_server.plugins.ray.fleet_member import OWN, FleetMember
from tutti_server.plugins.ray.membership import Member
from tutti_server.plugins.ray.ray_transcriber import RayTranscriber

logger = logging.getLogger(__name__)

SEVERAL = 2
"""A number of gateways above 1: any request may reach another gateway. How many there are changes."""


@serve.ingress()
class GatewayReplica:
    """Sockets and sessions of one process. It drains when Serve stops it."""

    def __init__(
        self, settings: Settings, key: str, engines: DeploymentHandle[Any], fleet: DeploymentHandle[Any]
    ) -> None:
        """Called by Serve. All gateways have the same key, which signs client secrets."""
        set_up_logging(settings)
        reserve_descriptors(settings)
        self._settings = settings
        self._key = key
        self._engines = engines
        self._name = serve.get_replica_context().replica_id.unique_id
        self._member = FleetMember(self._name, _HandleCalls(fleet))
        self._is_member = False
        self._app: Any = None
        self._drain: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __serve_build_asgi_app__(self) -> ASGIApp:
        """Build the application when an engine and the other gateways are known. Called by Serve."""
        for plugin in installed_plugins():
            await plugin.prepare(self._settings)
        known = asyncio.get_running_loop().create_future()
        self._tasks.append(asyncio.create_task(self._follow_engines(known)))
        transcriber: RayTranscriber = await known
        member = self._member
        shared = SharedState(
            key=self._key,
            counter=AdmissionCounter(member.counts, OWN, outlives_gateway=True),
            n_gateways=SEVERAL,
            metrics_of_all=member.metrics,
        )
        self._app = build_app(self._settings, transcriber, shared=shared)
        self._tasks.append(asyncio.create_task(member.run(self._app.state.service.metrics.snapshot)))
        await member.is_known.wait()
        self._follow_gateways(transcriber)
        # What is loaded stays: the search for garbage then takes a few milliseconds, which sessions do not notice.
        gc.freeze()
        return _with_state(self._app)

    async def _follow_engines(self, known: "asyncio.Future[RayTranscriber]") -> None:
        """Follow the engines for as long as this process lives."""
        node = ray.get_runtime_context().get_node_id()
        async with asyncio.TaskGroup() as tasks:
            transcriber = RayTranscriber(self._engines, node, tasks)
            membership.of_process.watch(self._engines.deployment_name, transcriber.follow)
            await transcriber.until_known()
            known.set_result(transcriber)
            await asyncio.Event().wait()

    def _follow_gateways(self, transcriber: RayTranscriber) -> None:
        """Notice when Serve stops this replica: it is a member no more. Serve itself would wait for open sessions."""
        context = serve.get_replica_context()
        # A handle has a router, which publishes the members.
        self._own_handle = serve.get_deployment_handle(context.deployment, context.app_name).options(stream=True)
        membership.of_process.watch(context.deployment, partial(self._note_gateways, transcriber))

    def _note_gateways(self, transcriber: RayTranscriber, members: tuple[Member, ...]) -> None:
        names = sorted(member.name for member in members)
        is_member = self._name in names
        if is_member:
            transcriber.set_gateways(names.index(self._name), len(names))
        elif self._is_member and self._drain is None:
            logger.info("Serve stops this gateway")
            self._drain = asyncio.create_task(drain(self._app.state.service))
        self._is_member = is_member


class _HandleCalls:
    def __init__(self, fleet: DeploymentHandle[Any]) -> None:
        self._exchange = fleet.options(method_name="exchange")
        self._metrics = fleet.options(method_name="metrics")

    def exchange(
        self, name: str, counts: tuple[int, ...], metrics: Sequence[Metric] | None
    ) -> Awaitable[Mapping[str, Entry]]:
        answer: Awaitable[Mapping[str, Entry]] = self._exchange.remote(name, counts, metrics)
        return answer

    def metrics(self) -> Awaitable[Mapping[str, Sequence[Metric]]]:
        # In a context of its own: Serve cancels the calls of a request that ends early, which blocks the event loop.
        return Context().run(self._metrics.remote)


def _with_state(app: ASGIApp) -> ASGIApp:
    """The application with the part of the scope that uvicorn adds, and Serve's proxy does not pass on."""

    async def serve_request(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})
        await app(scope, receive, send)

    return serve_request
