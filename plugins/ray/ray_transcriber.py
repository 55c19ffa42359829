"""The engines of a Ray cluster as one `Transcriber`: follows which replicas serve, and calls them over Serve."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextvars import Context
from dataclasses import replace
from typing import Any

from ray.exceptions import RayActorError, RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from tutti_server.cluster.balancing import Balancer
from tutti_server.cluster.engine_pool import EnginePool
from tutti_server.engine.api import EngineEvent, EngineStats, Window
from tutti_server.engine.errors import EngineError
from tutti_server.plugins.ray.engine_link import CallFailed, RayEngineLink, Report
from tutti_server.plugins.ray.membership import Member

logger = logging.getLogger(__name__)

NODE_DIED = "its node has died"
"""A part of Ray's message where a replica has ended with its node."""


class RayTranscriber(EnginePool):
    """A `Transcriber` over the engine replicas of a Ray cluster. Those of its own node come first.

    It has no engine before the first call of `follow`.
    """

    def __init__(self, engines: DeploymentHandle[Any], node: str, tasks: asyncio.TaskGroup) -> None:
        """Create a transcriber of the process on this node of Ray's."""
        balancer = Balancer()
        super().__init__((), balancer)
        self.set_gateways = balancer.set_gateways
        """Which of the gateways this is, and how many there are. Call it when gateways have come or gone."""
        # Its router publishes the members from now on.
        self._handle = engines.options(stream=True)
        self._node = node
        self._tasks = tasks
        self._members: dict[str, RayEngineLink] = {}
        self._is_known = asyncio.Event()

    def follow(self, members: tuple[Member, ...]) -> None:
        """Use these replicas, and no others any more."""
        names = {member.name for member in members}
        for name in self._members.keys() - names:
            link = self._members.pop(name)
            link.leave()
            self.remove(link)
            logger.info("the engine %s has left", name)
        # The order in which engines are filled: own ones first.
        for member in sorted(members, key=lambda each: each.node != self._node):
            if member.name not in self._members:
                self._join(member)

    def stats(self) -> EngineStats:
        """See `EnginePool.stats`. Engines have their names also while there is one: their number changes."""
        stats = super().stats()
        return stats if stats.engines else replace(stats, engines={self._known()[0].name: stats})

    async def until_known(self) -> None:
        """Wait until an engine has reported, so that the model is known."""
        await self._is_known.wait()

    def notify(self) -> None:
        """See `EnginePool.notify`."""
        super().notify()
        if self.is_alive:
            self._is_known.set()

    def _join(self, member: Member) -> None:
        link = RayEngineLink(member.name, member.node, _HandleCalls(self._handle, member.name), self.notify)
        self._members[member.name] = link
        self.add(link, first=member.node == self._node)
        self._tasks.create_task(link.run())
        logger.info("the engine %s has joined", member.name)


class _HandleCalls:
    """Calls one replica. The handle's router (`request_routers.py`) finds it by its name."""

    def __init__(self, handle: DeploymentHandle[Any], name: str) -> None:
        self._decode = handle.options(method_name="decode")
        self._reports = handle.options(method_name="reports")
        self._cancel = handle.options(method_name="cancel", stream=False)
        self._name = name

    def decode(self, id: str, window: Window) -> AsyncIterator[EngineEvent | EngineError]:
        return _items(self._decode, id, window, replica=self._name)

    def cancel(self, id: str) -> None:
        Context().run(self._cancel.remote, id, replica=self._name)

    def reports(self) -> AsyncIterator[Report]:
        return _items(self._reports, replica=self._name)


async def _items(method: Any, *arguments: object, replica: str) -> AsyncIterator[Any]:
    """The items of one streaming call; raises `CallFailed`."""
    try:
        async for item in method.remote(*arguments, replica=replica):
            yield item
    except (RayError, RayServeException) as error:
        # Ray does not say whether a process was killed or has crashed. The end of its whole node is no engine's fault.
        is_node_dead = isinstance(error, RayActorError) and (error.preempted or NODE_DIED in str(error))
        raise CallFailed(str(error), was_killed=is_node_dead) from error
