"""What can go wrong in the engine.

EngineError
├── InvalidWindow       the caller asked for something this model cannot do
├── EngineOverloaded    the queue is full; try again later
├── EngineFailed        the engine's thread has died; nothing will be answered any more
└── CheckpointError     the model cannot be loaded
"""


class EngineError(Exception):
    """Base of all errors of the engine; `code` is stable and may be shown to clients."""

    code = "engine_error"


class InvalidWindow(EngineError):
    """Says which field was wrong, what it was and what was expected."""

    code = "invalid_window"

    def __init__(self, field: str, expected: str, got: object) -> None:
        super().__init__(field, expected, got)
        self.field = field
        self.expected = expected
        self.got = got

    def __str__(self) -> str:
        return f"{self.field}: expected {self.expected}, got {self.got!r}"


class EngineOverloaded(EngineError):
    code = "overloaded"

    def __init__(self, waiting: int, limit: int) -> None:
        super().__init__(waiting, limit)
        self.waiting = waiting
        self.limit = limit

    def __str__(self) -> str:
        return f"the engine's queue is full: {self.waiting} windows wait, the limit is {self.limit}"


class EngineFailed(EngineError):
    code = "engine_failed"


class CheckpointError(EngineError):
    """The message says which file or weight, and what to do."""

    code = "bad_checkpoint"
