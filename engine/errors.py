"""What can go wrong in the engine.

EngineError
├── InvalidWindow       the caller asked for something this model cannot do
├── EngineOverloaded    no room for a window that may be dropped
├── EngineFailed        the engine has died or was closed, or it fails at one window again and again
└── CheckpointError     the model cannot be loaded
"""


class EngineError(Exception):
    """Base of all errors of the engine; `code` is stable and may be shown to clients."""

    code = "engine_error"


class InvalidWindow(EngineError):
    """A window or its options cannot be decoded. The message says which field is wrong and what was expected."""

    code = "invalid_window"

    def __init__(self, field: str, expected: str, got: object) -> None:
        super().__init__(field, expected, got)
        self.field = field
        self.expected = expected
        self.got = got

    def __str__(self) -> str:
        return f"{self.field}: expected {self.expected}, got {self.got!r}"


class EngineOverloaded(EngineError):
    """The engine has no room for a window that may be dropped."""

    code = "overloaded"

    def __init__(self, waiting: int, limit: int) -> None:
        super().__init__(waiting, limit)
        self.waiting = waiting
        self.limit = limit

    def __str__(self) -> str:
        return f"the engine's queue is full: {self.waiting} windows wait, the limit is {self.limit}"


class EngineFailed(EngineError):
    """The engine has died or was closed; `__cause__` is the failure, if there was one.

    Or only one window fails, while the engine goes on or is replaced: because steps of the engine failed several times
    while it had the window, or because the window was decoded differently after a failure. `Transcriber.is_alive` and
    `is_lost` tell which.
    """

    code = "engine_failed"


class CheckpointError(EngineError):
    """The model cannot be loaded. The message says which file or weight is wrong, and what to do."""

    code = "bad_checkpoint"
