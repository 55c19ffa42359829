"""What the settings of telephone systems must be: the port of AudioSocket, who may use it, and AudioHook's secret."""

import base64
import binascii
import ipaddress
from typing import TYPE_CHECKING

from app.errors import SettingsError

if TYPE_CHECKING:
    from app.service.settings import Settings

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def check_carriers(settings: "Settings") -> None:
    """Check these settings.

    Raises:
        SettingsError: a value is not valid, or anybody could open sessions by AudioSocket.
    """
    if settings.audiohook_secret:
        audiohook_key(settings)
    port = settings.audiosocket_port
    if not 0 <= port <= 65535 or (port and port == settings.port and audiosocket_host(settings) == settings.host):
        raise SettingsError(f"audiosocket_port: expected 0 to 65535, and another one than port, got {port!r}")
    audiosocket_networks(settings)
    if not port:
        for name in ("audiosocket_host", "audiosocket_networks"):
            if getattr(settings, name):
                raise SettingsError(f"{name}: expected audiosocket_port with it, got none")
    elif not (settings.keys or settings.allow_anyone or _is_loopback(audiosocket_host(settings))):
        raise SettingsError(
            f"audiosocket_host: other machines can reach {audiosocket_host(settings)}, and no API keys are set. Set "
            "TUTTI_API_KEYS (or --api-keys), or add --allow-anyone to serve everybody"
        )


def audiosocket_host(settings: "Settings") -> str:
    """The address on which AudioSocket is served."""
    return settings.audiosocket_host or settings.host


def audiosocket_networks(settings: "Settings") -> tuple[Network, ...]:
    """The networks whose calls need not be announced.

    Raises:
        SettingsError: one of them is no network.
    """
    networks = []
    for name in filter(None, (each.strip() for each in settings.audiosocket_networks.split(","))):
        try:
            networks.append(ipaddress.ip_network(name))
        except ValueError as error:
            raise SettingsError(f"audiosocket_networks: expected addresses and networks, got {name!r}") from error
    return tuple(networks)


def audiohook_key(settings: "Settings") -> bytes:
    """The client secret of AudioHook.

    Raises:
        SettingsError: it is not base64. The message does not show it.
    """
    try:
        key = base64.b64decode(settings.audiohook_secret, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise SettingsError("audiohook_secret: expected base64, as Genesys asks for it, got something else")
    return key


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
