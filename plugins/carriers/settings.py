"""The settings of telephone systems: the port of AudioSocket, who may use it, and the secret of AudioHook."""

import base64
from dataclasses import dataclass

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.settings import Network, PluginSettings, Settings, is_loopback, networks_in, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierSettings(PluginSettings):
    """The settings of telephone systems."""

    audiohook_secret: str = setting(
        "",
        "Client secret of the Genesys AudioHook integration, in base64. Connections of AudioHook must be signed with "
        "it. Empty: their API key is enough.",
    )
    audiosocket_port: int = setting(0, "Port for Asterisk's AudioSocket, over TCP without TLS. 0: none.")
    audiosocket_host: str = setting("", "Address to listen on for AudioSocket. Empty: that of host.")
    audiosocket_networks: str = setting(
        "",
        "Addresses and networks, separated by commas, whose calls over AudioSocket need not be announced. AudioSocket "
        "has no keys: other calls must be announced at /v1/audiosocket/calls with one.",
    )

    def check(self, settings: Settings) -> None:
        """Check these settings.

        Raises:
            SettingsError: a value is not valid, or anybody could open sessions by AudioSocket.
        """
        if self.audiohook_secret:
            self.audiohook_key  # noqa: B018  # reads it
        port, host = self.audiosocket_port, self.host(settings)
        if not 0 <= port <= 65535 or (port and port == settings.port and host == settings.host):
            raise SettingsError(f"audiosocket_port: expected 0 to 65535, and another one than port, got {port!r}")
        self.networks  # noqa: B018  # reads them
        if not port:
            for name in ("audiosocket_host", "audiosocket_networks"):
                if getattr(self, name):
                    raise SettingsError(f"{name}: expected audiosocket_port with it, got none")
        elif not (settings.needs_key or settings.allow_anyone or is_loopback(host)):
            raise SettingsError(
                f"audiosocket_host: other machines can reach {host}, and no API keys are set. Set TUTTI_API_KEYS (or "
                "--api-keys), or add --allow-anyone to serve everybody"
            )

    def host(self, settings: Settings) -> str:
        """The address on which AudioSocket is served."""
        return self.audiosocket_host or settings.host

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks whose calls over AudioSocket need not be announced.

        Raises:
            SettingsError: one of them is no network.
        """
        return networks_in("audiosocket_networks", self.audiosocket_networks)

    @property
    def audiohook_key(self) -> bytes:
        """The client secret of AudioHook.

        Raises:
            SettingsError: it is not base64. The message does not show it.
        """
        try:
            key = base64.b64decode(self.audiohook_secret, validate=True)
        except ValueError:
            key = b""
        if not key:
            raise SettingsError("audiohook_secret: expected base64, as Genesys asks for it, got something else")
        return key
