"""Puts the chunks of a track in order: Telnyx does not promise that they arrive in it."""

from dataclasses import dataclass, field

MAX_HELD = 10
"""Chunks that wait for one that is missing. With 20 ms each, a lost chunk delays the audio after it by 200 ms once."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a track."""

    number: int
    start_ms: int
    """Where it begins, in milliseconds since the start of the stream."""
    data: bytes


@dataclass(slots=True)
class ChunkOrder:
    """The chunks of one track."""

    _next: int | None = None
    """The number of the chunk that is due; none before the first one."""
    _held: dict[int, Chunk] = field(default_factory=dict)

    def add(self, chunk: Chunk) -> list[Chunk]:
        """Add a chunk, and return those that are in order now. One that comes after its turn is returned at once."""
        if self._next is None:
            self._next = chunk.number
        if chunk.number < self._next:
            return [chunk]
        self._held[chunk.number] = chunk
        if len(self._held) > MAX_HELD:
            self._next = min(self._held)
        ready = []
        while self._next in self._held:
            ready.append(self._held.pop(self._next))
            self._next += 1
        return ready

    def finish(self) -> list[Chunk]:
        """Return what still waits, in order."""
        ready = [self._held[number] for number in sorted(self._held)]
        self._held.clear()
        return ready
