"""Counts the audio of one gateway's sessions and uploads for the metrics of keys, where no database keeps it."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from secrets import token_hex
from typing import Protocol

from tutti_server.app.background import in_background, repeat
from tutti_server.app.service.account_service import Kind
from tutti_server.app.service.api_keys import ApiKey

NOTE_EVERY_S = 5.0
"""How often the audio of open sessions is noted, in seconds."""


class NoteUsage(Protocol):
    """Told of used audio, for the metrics."""

    def __call__(self, key: ApiKey | None, kind: Kind, audio_s: float, is_new: bool) -> None:
        """Note audio that one session, upload or job has used since the last call; `is_new` in the first one."""
        ...


class Meter:
    """The audio of one session, upload or job."""

    def __init__(self, key: ApiKey | None, kind: Kind, audio_s: Callable[[], float]) -> None:
        self.source = f"{kind}-{token_hex(12)}"
        self.key = key
        self.kind = kind
        self.noted_s = 0.0
        self._audio_s = audio_s

    def new_s(self) -> float:
        """The audio since `noted_s`, in seconds; what a source has used never becomes less."""
        return max(self._audio_s() - self.noted_s, 0.0)


class MeteredUsage:
    """Notes audio while it is used."""

    def __init__(self, note: NoteUsage) -> None:
        """Prepare to count; `note` is called with what is new."""
        self._note = note
        self._meters: set[Meter] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Note the audio of open sessions every few seconds while the context is open."""
        async with in_background(repeat(self._note_now, NOTE_EVERY_S, "usage cannot be noted")):
            yield

    @contextmanager
    def counting(self, key: ApiKey | None, kind: Kind, audio_s: Callable[[], float]) -> Iterator[None]:
        """See `account_service.Meters.counting`."""
        meter = Meter(key, kind, audio_s)
        self._meters.add(meter)
        try:
            yield
        finally:
            self._meters.discard(meter)
            self._read(meter)

    def note_open(self) -> None:
        """Note what open sessions have used so far."""
        for meter in self._meters:
            self._read(meter)

    async def _note_now(self) -> None:
        self.note_open()

    def _read(self, meter: Meter) -> float:
        """Note what a meter has counted since the last time, and return it in seconds."""
        new_s = meter.new_s()
        if new_s:
            self._note(meter.key, meter.kind, new_s, is_new=not meter.noted_s)
            meter.noted_s += new_s
        return new_s
