"""The plug-in of telephone systems: their paths, the port of AudioSocket, and their settings."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tutti_server.app.server.plugins import Listener, Plugin
from tutti_server.app.service.settings import Settings
from tutti_server.plugins.carriers.settings import CarrierSettings

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from tutti_server.app.service.service import Service


class Carriers(Plugin):
    """Serves the calls of telephone systems."""

    name = "carriers"
    settings = CarrierSettings

    # What serves is imported where it is used, so that `tutti serve --help` is quick.

    def routes(self, service: "Service") -> "Sequence[BaseRoute]":
        """See `Plugin.routes`."""
        from tutti_server.plugins.carriers.routes import routes

        return routes()

    def openapi(self) -> Mapping[str, Any]:
        """See `Plugin.openapi`."""
        from tutti_server.plugins.carriers.routes import PATHS

        return PATHS

    def listeners(self, settings: Settings) -> Sequence[Listener]:
        """See `Plugin.listeners`."""
        if not settings.of(CarrierSettings).audiosocket_port:
            return ()
        from tutti_server.plugins.carriers.audiosocket.endpoint import AudioSocketListener

        return (AudioSocketListener(settings),)


plugin = Carriers()
