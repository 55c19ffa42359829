"""The plug-in of Wyoming: its port, and who may use it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tutti_server.app.errors import SettingsError
from tutti_server.app.server.plugins import Listener, Plugin
from tutti_server.app.service.settings import Network, PluginSettings, Settings, networks_in, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class WyomingSettings(PluginSettings):
    """The settings of Wyoming."""

    wyoming_port: int = setting(0, "Port for Wyoming (Home Assistant), over TCP without TLS; usually 10300. 0: none.")
    wyoming_networks: str = setting(
        "",
        "Addresses and networks, separated by commas, whose clients are served over Wyoming where the server has API "
        "keys. Wyoming has none.",
    )

    def check(self, settings: Settings) -> None:
        """Check these settings.

        Raises:
            SettingsError: a value is not valid, or no client could use the port.
        """
        port = self.wyoming_port
        if not 0 <= port <= 65535 or (port and port == settings.port):
            raise SettingsError(f"wyoming_port: expected 0 to 65535, and another one than port, got {port!r}")
        if self.networks and not port:
            raise SettingsError("wyoming_networks: expected wyoming_port with it, got none")
        if port and not self.networks and settings.needs_key:
            raise SettingsError("wyoming_port: expected wyoming_networks with it, as the server has API keys, got none")

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks whose clients are served.

        Raises:
            SettingsError: one of them is no network.
        """
        return networks_in("wyoming_networks", self.wyoming_networks)


class Wyoming(Plugin):
    """Serves Wyoming's clients."""

    name = "wyoming"
    settings = WyomingSettings

    def listeners(self, settings: Settings) -> Sequence[Listener]:
        """See `Plugin.listeners`."""
        if not settings.of(WyomingSettings).wyoming_port:
            return ()
        from tutti_server.plugins.wyoming.dialect import WyomingPort

        return (WyomingPort(settings),)


plugin = Wyoming()
