"""Connections of clients: admitted, or unauthenticated, as no request or no valid key has come from them.

The service limits the number of unauthenticated connections, in all and for each address, and the time that each may
stay so.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

from tutti_server.app.service.metrics import UnauthenticatedMetrics
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import AdmissionCounter

STATE_KEY = "client_connection"
"""The key under which the `state` of a request's scope holds the `ClientConnection` of its connection."""
IPV6_PREFIX = 64
"""Addresses of IPv6 are counted by their network of this many bits, which is what one customer has."""

OUT_OF_USE = 1_000_000
"""What a gateway counts that takes no clients any more: more connections than any other one has."""


class UnauthenticatedConnections:
    """All unauthenticated connections of one process, the oldest first.

    A newcomer is always let in. If there are too many then, the one that has been here for longest is cut off: an
    honest client is here for milliseconds, an idle one until its time is over.
    """

    def __init__(self, settings: Settings, metrics: UnauthenticatedMetrics, counter: AdmissionCounter) -> None:
        self.counter = counter
        """Counts all connections, admitted or not, for the other gateways."""
        self._settings = settings
        self._metrics = metrics
        self._proxies = settings.proxy_networks
        self._all: dict[ClientConnection, None] = {}
        self._by_address: dict[str, dict[ClientConnection, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def arrive(self, address: str | None, cut: Callable[[str], None]) -> "ClientConnection":
        """Count a new connection as unauthenticated. `cut` closes it and is given the reason, `slow` or `crowded`."""
        connection = ClientConnection(self, self.group(address), cut)
        self.counter.change("connections", 1)
        self.add(connection)
        return connection

    def note_end(self) -> None:
        """Count a connection no longer, admitted or not. Called by the connection."""
        self.counter.change("connections", -1)

    def leave_to_others(self) -> None:
        """Let other gateways accept the next connections, as long as there are any that do."""
        self.counter.change("connections", OUT_OF_USE)

    def note_refusal(self, reason: str) -> None:
        """Count a connection that was refused or cut off. There is no line in the log: anyone could fill it."""
        self._metrics.refused_total.labels(reason).inc()

    def add(self, connection: "ClientConnection") -> None:
        """Count a connection as the newest unauthenticated one. Called by the connection."""
        self._all[connection] = None
        self._metrics.n_open.inc()
        same_address = self._by_address.setdefault(connection.group, {}) if connection.group else {}
        same_address[connection] = None
        if len(same_address) > self._settings.max_strangers_per_address:
            next(iter(same_address)).cut("crowded")
        elif len(self._all) > self._settings.max_strangers:
            next(iter(self._all)).cut("crowded")

    def remove(self, connection: "ClientConnection") -> None:
        """Count a connection as unauthenticated no longer. Called by the connection."""
        del self._all[connection]
        self._metrics.n_open.dec()
        if connection.group:
            same_address = self._by_address[connection.group]
            del same_address[connection]
            if not same_address:
                del self._by_address[connection.group]

    def group(self, address: str | None) -> str:
        """The address under which a connection is counted; empty if it counts in all only, as a proxy's does."""
        try:
            number = ipaddress.ip_address(address or "")
        except ValueError:
            return ""
        if isinstance(number, ipaddress.IPv6Address):
            # As a proxy writes a client of IPv4 that came over a socket for both.
            number = number.ipv4_mapped or number
        if any(number in network for network in self._proxies):
            return ""
        if number.version == 6:
            number = ipaddress.ip_network((number, IPV6_PREFIX), strict=False).network_address
        return str(number)


class ClientConnection:
    """One connection, which is admitted or not yet."""

    def __init__(self, unauthenticated: UnauthenticatedConnections, group: str, cut: Callable[[str], None]) -> None:
        self.group = group
        """The address under which the connection is counted."""
        self._unauthenticated = unauthenticated
        self._cut = cut
        self._is_admitted = False
        self._has_left = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_idle = False

    def expect(self, seconds: float) -> None:
        """Cut the connection off after this time, unless it is admitted or this is called again before."""
        self._cancel_timer()
        self._is_idle = False
        if not self._is_admitted:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.cut, "slow")

    def cut_by(self, cut: Callable[[str], None]) -> None:
        """Let this end the connection from now on; see `UnauthenticatedConnections.arrive`."""
        self._cut = cut

    def wait(self) -> None:
        """Limit the time of the connection no longer: what serves it does."""
        self._cancel_timer()

    def rest(self) -> None:
        """Limit the time of the client no longer: it was answered, and its HTTP connection limits the wait for more."""
        self._cancel_timer()
        self._is_idle = True

    def come_from(self, address: str | None) -> None:
        """Count the connection under the address of the client whose request a proxy has passed on."""
        group = self._unauthenticated.group(address)
        if not self._is_admitted and group != self.group:
            self._unauthenticated.remove(self)
            self.group = group
            self._unauthenticated.add(self)

    def admit(self) -> None:
        """The client may be here: neither count it nor limit its time, until `dismiss`."""
        self._cancel_timer()
        if not self._is_admitted:
            self._is_admitted = True
            self._unauthenticated.remove(self)

    def dismiss(self) -> None:
        """What the client was admitted for is over: it is unauthenticated again."""
        if self._is_admitted and not self._has_left:
            self._is_admitted = False
            self._unauthenticated.add(self)

    def leave(self) -> None:
        """The connection has ended."""
        if not self._has_left:
            self._has_left = True
            self._unauthenticated.note_end()
        self.admit()

    def cut(self, reason: str) -> None:
        """End the connection, and count the reason if its client was not admitted, nor idle after an answer."""
        if not self._is_admitted and not self._is_idle:
            self._unauthenticated.note_refusal(reason)
        self.leave()
        self._cut(reason)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def admit(scope: Mapping[str, Any]) -> None:
    """Admit the client of this request. Does nothing under another server than ours, which counts no connections."""
    if (connection := _connection(scope)) is not None:
        connection.admit()


def address_of(scope: Mapping[str, Any]) -> str:
    """The address under which the client of this request is counted; see `UnauthenticatedConnections.group`."""
    connection = _connection(scope)
    return connection.group if connection is not None else ""


def let_wait(scope: Mapping[str, Any]) -> None:
    """Let the client of this request stay unauthenticated until `admit`, for as long as its endpoint lets it."""
    if (connection := _connection(scope)) is not None:
        connection.wait()


def cut_slow(scope: Mapping[str, Any]) -> bool:
    """End the connection of a client that does not read, at once. False under another server than ours."""
    connection = _connection(scope)
    if connection is not None:
        connection.cut("slow")
    return connection is not None


def _connection(scope: Mapping[str, Any]) -> ClientConnection | None:
    connection: ClientConnection | None = scope.get("state", {}).get(STATE_KEY)
    return connection
