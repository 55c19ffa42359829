"""The engines as a gateway has them: a link to each engine process, and the pool that chooses among them."""

import logging
from typing import assert_never

from tutti_server.cluster.balancing import Balancer
from tutti_server.cluster.engine_pool import EnginePool
from tutti_server.cluster.local.control_messages import EngineDown, EngineLost, EngineUp
from tutti_server.cluster.local.engine_link import GatewayEnd, LocalEngineLink

logger = logging.getLogger(__name__)


class GatewayEngines:
    """Keeps the links up to date with what the supervisor says of the engines."""

    def __init__(self, end: GatewayEnd, n_engines: int, *, gateway: int = 0, n_gateways: int = 1) -> None:
        """Create the links, none of which has an engine yet."""
        self._links = [LocalEngineLink(str(number), end, self._note_room) for number in range(n_engines)]
        self.transcriber = EnginePool(self._links, Balancer(gateway, n_gateways))

    def handle(self, message: EngineUp | EngineDown | EngineLost) -> None:
        """Note that an engine has started, has died, or is given up."""
        link = self._links[message.engine]
        match message:
            case EngineUp():
                link.connect(message)
            case EngineDown():
                logger.warning("engine %s has died; waiting for another", link.name)
                link.disconnect(f"engine {link.name} has died", was_killed=message.was_killed)
            case EngineLost():
                link.problem = message.reason
                if all(each.is_lost for each in self._links):
                    self.transcriber.close(message.reason)
            case _:
                assert_never(message)
        self.transcriber.notify()

    def _note_room(self) -> None:
        self.transcriber.notify()

    def close(self, reason: str) -> None:
        """Fail all windows and close all links."""
        self.transcriber.close(reason)
        for link in self._links:
            link.disconnect(reason)
