"""The messages between the supervisor and a process that it started, over the pipe between them.

The supervisor sends a `ControlMessage`. The process sends one `StartReport`, when its start has succeeded or failed.
"""

from dataclasses import dataclass

from engine.api import EngineStats, ModelInfo


@dataclass(frozen=True, slots=True)
class EngineUp:
    """The engine accepts windows. The engine reports it to the supervisor, which sends it to every gateway."""

    address: str
    """The address to which gateways connect: `ipc://` and the path of a socket, a new one for each engine process."""
    info: ModelInfo
    stats: EngineStats
    """The engine's counters when it was ready."""


@dataclass(frozen=True, slots=True)
class EngineDown:
    """To a gateway: the engine has died, and the supervisor starts another."""


@dataclass(frozen=True, slots=True)
class EngineLost:
    """To a gateway: the engine has died, and the supervisor has given up restarting it."""

    reason: str


@dataclass(frozen=True, slots=True)
class GatewayGone:
    """To the engine: the gateway at this route has died, and its windows are to be cancelled."""

    route: bytes


ControlMessage = EngineUp | EngineDown | EngineLost | GatewayGone
"""What the supervisor sends to a process."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has started."""

    engine: EngineUp | None = None
    """How gateways reach the engine, if the process is the engine."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The process cannot start, for a reason that the operator can remove, such as an unknown model."""

    reason: str


StartReport = Ready | Failed
"""What a process sends to the supervisor."""
