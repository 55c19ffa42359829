"""Files of the operator that are read again when they have changed."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tutti_server.app.background import in_background, repeat
from tutti_server.app.errors import SettingsError

logger = logging.getLogger(__name__)

POLL_S = 2.0
"""How often the files are looked at, in seconds: so long a key that was taken out may be used."""


class FollowedFiles(ABC):
    """What some files hold. A change that cannot be used leaves it as it was."""

    def __init__(self, name: str, paths: Sequence[Path]) -> None:
        """Note what the files are like, before they are first read. `name` says in the log what they hold."""
        self._name = name
        self._paths = paths
        self._states = self._find_states()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow changes of the files while the context is open."""
        if not self._paths:
            yield
            return
        async with in_background(repeat(self.refresh, POLL_S, f"the {self._name} stay as they were")):
            yield

    async def refresh(self) -> None:
        """Read the files again if one has changed. The log says what is wrong with files that cannot be used."""
        states = await asyncio.to_thread(self._find_states)
        if states == self._states:
            return
        try:
            await self.load()
        except SettingsError as error:
            logger.error("the %s stay as they were: %s", self._name, error)
        else:
            logger.info("the %s were read again from %s", self._name, ", ".join(map(str, self._paths)))
        # Not before: after a failure of another kind the same change is tried again.
        self._states = states

    @abstractmethod
    async def load(self) -> None:
        """Read the files, and use what they hold from now on.

        Raises:
            SettingsError: it cannot be used. Nothing has changed then.
        """

    def _find_states(self) -> list[tuple[int, int, int] | None]:
        """What differs after a change, for each file; `None` for one that is gone."""
        return list(map(_state, self._paths))


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
