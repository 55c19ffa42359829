"""Which replicas of a deployment serve now, as Ray Serve tells every process that holds a handle of the deployment.

Serve makes the request router of a handle itself, and calls it in a thread of its own. So the router publishes what it
learns here, and the rest of the process watches it here.
"""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

Notify = Callable[["tuple[Member, ...]"], None]


@dataclass(frozen=True, slots=True)
class Member:
    """A replica that serves now: it has started, and Serve does not stop it."""

    name: str
    """Serve's id of the replica, which no later replica has again."""
    node: str
    """Ray's id of its node."""


class Membership:
    """The members of each deployment, by the name of the deployment. Its methods may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: dict[str, tuple[Member, ...]] = {}
        self._watchers: defaultdict[str, list[tuple[asyncio.AbstractEventLoop, Notify]]] = defaultdict(list)

    def publish(self, deployment: str, members: tuple[Member, ...]) -> None:
        """Note all members of a deployment, and notify those who watch it."""
        with self._lock:
            self._members[deployment] = members
            watchers = list(self._watchers[deployment])
        for loop, notify in watchers:
            loop.call_soon_threadsafe(notify, members)

    def watch(self, deployment: str, notify: Notify) -> None:
        """Call `notify` on the running event loop with all members, now if they are known, and after each change."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._watchers[deployment].append((loop, notify))
            members = self._members.get(deployment)
        if members is not None:
            loop.call_soon(notify, members)


of_process = Membership()
"""The members that this process knows."""
