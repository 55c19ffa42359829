"""Which addresses this server connects to for its clients: those of the operator's hosts, and no private ones.

The name is resolved here, every address of it is checked, and the connection goes to the checked address. So a name
whose address changes between the check and the connection gains nothing.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name."""

GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
"""What is given out to networks. Outside of it are private addresses, and those that gateways translate to IPv4."""
TUNNELS = (ipaddress.IPv6Network("2001::/32"), ipaddress.IPv6Network("2002::/16"))
"""The networks of Teredo and 6to4, whose addresses hold an IPv4 address, which may be private."""
RESOLVE_TIMEOUT_S = 10.0
NO_ADDRESS = (socket.EAI_NONAME, socket.EAI_NODATA)
"""Answers of the resolver that do not change by themselves."""
ANY = "*"


class AddressRefused(Exception):
    """An address is not one that the operator allows. The message says why, without showing what is behind a name."""


@dataclass(frozen=True, slots=True)
class Target:
    """An address that was checked."""

    host: str
    """The name, for the head of the request and for TLS."""
    addresses: tuple[str, ...]
    """The addresses to connect to: each is allowed."""


async def resolve_name(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, by the operating system's resolver. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class AddressRules:
    """The operator's rules for one purpose, such as fetching recordings."""

    def __init__(
        self,
        setting: str,
        hosts: Sequence[str],
        *,
        private_networks: Sequence[Network] = (),
        resolve: Resolve = resolve_name,
    ) -> None:
        """Create the rules.

        Args:
            setting: the name of the setting that lists the hosts, for messages.
            hosts: names in lower case. `*.example.org` are all names below that one, `*` are all.
            private_networks: networks that may be connected to although they are private, and without encryption.
            resolve: replaced by tests.
        """
        self._setting = f"TUTTI_{setting.upper()}"
        self._hosts = tuple(hosts)
        self._private_networks = tuple(private_networks)
        self._resolve = resolve

    def check(self, url: str) -> SplitResult:
        """Check what can be known of an address without the network, and return its parts.

        Raises:
            AddressRefused: it is no address of an allowed host.
        """
        schemes = ("https", "http") if self._private_networks else ("https",)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = SplitResult("", "", "", "", ""), None
        is_printable = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in schemes or not parts.hostname or port == 0 or not is_printable:
            raise AddressRefused(
                f"expected an address that begins with {' or '.join(f'{each}://' for each in schemes)}"
            )
        if not self._hosts:
            raise AddressRefused(
                f"this server connects to no addresses of clients; its operator can allow hosts: {self._setting}"
            )
        if not any(_matches(parts.hostname.rstrip(".").lower(), each) for each in self._hosts):
            raise AddressRefused(
                f"expected a host that the operator allows ({self._setting}), got {parts.hostname[:80]!r}"
            )
        return parts

    async def target(self, url: str) -> Target:
        """Find out to which addresses an address of a client leads.

        Raises:
            AddressRefused: the host is not allowed, has an address that is not, or has none. All but the first say
                the same, as else clients would learn which names there are in the operator's network.
            OSError, TimeoutError: whether it has addresses is not known now.
        """
        parts = self.check(url)
        host = parts.hostname or ""
        addresses: Sequence[str] = ()
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                addresses = await self._resolve(host, parts.port or (443 if parts.scheme == "https" else 80))
        except socket.gaierror as error:
            if error.errno not in NO_ADDRESS:
                raise
        # All of them, as a name with both a public and a private address is no name of the public network.
        is_allowed = self._is_private if parts.scheme == "http" else self._is_allowed
        if not addresses or not all(map(is_allowed, map(_parsed, addresses))):
            raise AddressRefused(f"expected a host with public addresses only, got {host[:80]!r}")
        return Target(host, tuple(addresses))

    def _is_allowed(self, address: Address) -> bool:
        return self._is_private(address) or is_public(address)

    def _is_private(self, address: Address) -> bool:
        return any(address in each for each in self._private_networks if each.version == address.version)


def _parsed(text: str) -> Address:
    """An address as the resolver writes it. One of IPv4 within IPv6 counts as itself."""
    address = ipaddress.ip_address(text.partition("%")[0])
    return (address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None) or address


def is_public(address: Address) -> bool:
    """Whether an address is one host of the public network: neither private, nor local, nor for many hosts."""
    if isinstance(address, ipaddress.IPv6Address) and (
        address not in GLOBAL_IPV6 or any(address in each for each in TUNNELS)
    ):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _matches(host: str, pattern: str) -> bool:
    return pattern in (ANY, host) or (pattern.startswith("*.") and host.endswith(pattern[1:]))
