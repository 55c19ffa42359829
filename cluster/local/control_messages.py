"""The messages between the supervisor and a process that it started, over the pipe between them.

The supervisor sends a `ControlMessage`. The process sends one `StartReport`, when its start has succeeded or failed.
After a successful start it answers each `Ping` with a `Pong`.
"""

from dataclasses import dataclass

from tutti_server.engine.api import EngineStats, ModelInfo


@dataclass(frozen=True, slots=True)
class EngineUp:
    """An engine accepts windows. The engine reports it to the supervisor, which sends it to every gateway."""

    engine: int
    """The number of the engine, from 0. An engine that replaces a dead one has the same number."""
    address: str
    """The address to which gateways connect: the path of a socket, a new one for each engine process."""
    info: ModelInfo
    stats: EngineStats
    """The engine's counters when it was ready."""


@dataclass(frozen=True, slots=True)
class EngineDown:
    """To a gateway: an engine has died, and the supervisor starts another."""

    engine: int
    was_killed: bool
    """Whether it was ended from outside: by another program, or by the system where memory was short."""


@dataclass(frozen=True, slots=True)
class EngineLost:
    """To a gateway: an engine has died, and is not expected back soon."""

    engine: int
    reason: str


@dataclass(frozen=True, slots=True)
class GatewayGone:
    """To an engine: the gateway at this route has died, and its windows are to be cancelled."""

    route: bytes


ControlMessage = EngineUp | EngineDown | EngineLost | GatewayGone
"""What the supervisor sends to a process."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has started."""

    engine: EngineUp | None = None
    """How gateways reach the engine, if the process is an engine."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The process cannot start, for a reason that the operator can remove, such as an unknown model."""

    reason: str


StartReport = Ready | Failed
"""What a process sends to the supervisor."""


@dataclass(frozen=True, slots=True)
class Ping:
    """To a process that has started: answer, to show that it does not hang."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a `Ping`."""
