"""Strangers: connections that are not admitted yet, as no request or no valid key has come from them.

They have no place of a session or an upload. Their number is bounded, in all and for each address, and so is their
time.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

from tutti_server.app.service.metrics import StrangerMetrics
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import AdmissionCounter

STATE_KEY = "visitor"
"""The key under which the `state` of a request's scope holds the `Visitor` of its connection."""
IPV6_PREFIX = 64
"""Addresses of IPv6 are counted by their network of this many bits, which is what one customer has."""

OUT_OF_USE = 1_000_000
"""What a gateway counts that takes no clients any more: more connections than any other one has."""


class Strangers:
    """All strangers of one process, the oldest first.

    A newcomer is always let in. If there are too many then, the one that has been a stranger for longest is cut off: an
    honest client is one for milliseconds, an idle one until its time is over.
    """

    def __init__(self, settings: Settings, metrics: StrangerMetrics, counter: AdmissionCounter) -> None:
        self.counter = counter
        """Counts all connections, admitted or not, for the other gateways."""
        self._settings = settings
        self._metrics = metrics
        self._proxies = settings.proxy_networks
        self._all: dict[Visitor, None] = {}
        self._by_address: dict[str, dict[Visitor, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def arrive(self, address: str | None, cut: Callable[[str], None]) -> "Visitor":
        """Count a new connection as unauthenticated. `cut` closes it and is given the reason, `slow` or `crowded`."""
        visitor = Visitor(self, self.group(address), cut)
        self.counter.change("connections", 1)
        self.add(visitor)
        return visitor

    def note_end(self) -> None:
        """Count a connection no longer, admitted or not. Called by the visitor."""
        self.counter.change("connections", -1)

    def leave_to_others(self) -> None:
        """Let other gateways accept the next connections, as long as there are any that do."""
        self.counter.change("connections", OUT_OF_USE)

    def note_refusal(self, reason: str) -> None:
        """Count a stranger that was refused or cut off. There is no line in the log: strangers could fill it."""
        self._metrics.refused_total.labels(reason).inc()

    def add(self, visitor: "Visitor") -> None:
        """Count a connection as the newest stranger. Called by the visitor."""
        self._all[visitor] = None
        self._metrics.n_open.inc()
        same_address = self._by_address.setdefault(visitor.group, {}) if visitor.group else {}
        same_address[visitor] = None
        if len(same_address) > self._settings.max_strangers_per_address:
            next(iter(same_address)).cut("crowded")
        elif len(self._all) > self._settings.max_strangers:
            next(iter(self._all)).cut("crowded")

    def remove(self, visitor: "Visitor") -> None:
        """Count a connection as a stranger no longer. Called by the visitor."""
        del self._all[visitor]
        self._metrics.n_open.dec()
        if visitor.group:
            same_address = self._by_address[visitor.group]
            del same_address[visitor]
            if not same_address:
                del self._by_address[visitor.group]

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


class Visitor:
    """One connection, which is admitted or not yet."""

    def __init__(self, strangers: Strangers, group: str, cut: Callable[[str], None]) -> None:
        self.group = group
        """The address under which the connection is counted."""
        self._strangers = strangers
        self._cut = cut
        self._is_stranger = True
        self._has_left = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_idle = False

    def expect(self, seconds: float) -> None:
        """Cut the stranger off after this time, unless it is admitted or this is called again before."""
        self._cancel_timer()
        self._is_idle = False
        if self._is_stranger:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.cut, "slow")

    def cut_by(self, cut: Callable[[str], None]) -> None:
        """Let this end the connection from now on; see `Strangers.arrive`."""
        self._cut = cut

    def wait(self) -> None:
        """Limit the time of the stranger no longer: what serves it does."""
        self._cancel_timer()

    def rest(self) -> None:
        """Limit the time of the client no longer: it was answered, and its HTTP connection limits the wait for more."""
        self._cancel_timer()
        self._is_idle = True

    def come_from(self, address: str | None) -> None:
        """Count the connection under the address of the client whose request a proxy has passed on."""
        group = self._strangers.group(address)
        if self._is_stranger and group != self.group:
            self._strangers.remove(self)
            self.group = group
            self._strangers.add(self)

    def admit(self) -> None:
        """The client may be here: neither count it nor limit its time, until `dismiss`."""
        self._cancel_timer()
        if self._is_stranger:
            self._is_stranger = False
            self._strangers.remove(self)

    def dismiss(self) -> None:
        """What the client was admitted for is over: it is a stranger again."""
        if not self._is_stranger and not self._has_left:
            self._is_stranger = True
            self._strangers.add(self)

    def leave(self) -> None:
        """The connection has ended."""
        if not self._has_left:
            self._has_left = True
            self._strangers.note_end()
        self.admit()

    def cut(self, reason: str) -> None:
        """End the connection, and count the reason if its client was not admitted, nor idle after an answer."""
        if self._is_stranger and not self._is_idle:
            self._strangers.note_refusal(reason)
        self.leave()
        self._cut(reason)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def admit(scope: Mapping[str, Any]) -> None:
    """Admit the client of this request. Does nothing under another server than ours, which counts no strangers."""
    if (visitor := _visitor(scope)) is not None:
        visitor.admit()


def address_of(scope: Mapping[str, Any]) -> str:
    """The address under which the client of this request is counted; see `Strangers.group`."""
    visitor = _visitor(scope)
    return visitor.group if visitor is not None else ""


def let_wait(scope: Mapping[str, Any]) -> None:
    """Let the client of this request stay a stranger until `admit`, for as long as its endpoint lets it."""
    if (visitor := _visitor(scope)) is not None:
        visitor.wait()


def cut_slow(scope: Mapping[str, Any]) -> bool:
    """End the connection of a client that does not read, at once. False under another server than ours."""
    visitor = _visitor(scope)
    if visitor is not None:
        visitor.cut("slow")
    return visitor is not None


def _visitor(scope: Mapping[str, Any]) -> Visitor | None:
    visitor: Visitor | None = scope.get("state", {}).get(STATE_KEY)
    return visitor
