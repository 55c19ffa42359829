"""The keys of a TOML file, which is read again when it has changed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.api_keys import ApiKey, read_api_keys

logger = logging.getLogger(__name__)

POLL_S = 2.0
"""How often the file is looked at, in seconds: so long a key that was taken out may be used."""


class FileKeys:
    """Knows the keys of a file. A change that cannot be used leaves the keys as they were."""

    def __init__(
        self,
        path: Path | None,
        check: Callable[[Sequence[ApiKey]], None] = lambda keys: None,
        known: Sequence[ApiKey] = (),
    ) -> None:
        """Read the file.

        Args:
            path: the file; `None` for no keys.
            check: raises a `SettingsError` for keys that this service cannot use.
            known: the keys that the file had before, for a process that starts again when it is gone.

        Raises:
            SettingsError: the file cannot be read and no keys are known from before, or its keys cannot be used.
        """
        self._path = path
        self._check = check
        self._state = self._state_of_file()
        self._by_key = self._read(known)

    @property
    def by_key(self) -> Mapping[str, ApiKey]:
        """The keys, by the text that clients send. A change replaces the mapping."""
        return self._by_key

    @property
    def keys(self) -> tuple[ApiKey, ...]:
        """The keys in the order of the file."""
        return tuple(self._by_key.values())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow changes of the file while the context is open."""
        if self._path is None:
            yield
            return
        polling = asyncio.create_task(self._keep_polling())
        try:
            yield
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)

    async def refresh(self) -> None:
        """Read the file again if it has changed. The log says what is wrong with one that cannot be used."""
        state = await asyncio.to_thread(self._state_of_file)
        if state == self._state:
            return
        self._state = state
        try:
            self._by_key = await asyncio.to_thread(self._read)
        except SettingsError as error:
            logger.error("the keys stay as they were: %s", error)
        else:
            logger.info("%d keys were read from %s", len(self._by_key), self._path)

    def _read(self, known: Sequence[ApiKey] = ()) -> dict[str, ApiKey]:
        keys: Sequence[ApiKey] = ()
        try:
            keys = read_api_keys(self._path) if self._path else ()
        except SettingsError as error:
            if not known:
                raise
            keys = known
            logger.error("the keys are those of the start: %s", error)
        self._check(keys)
        return {each.key: each for each in keys}

    def _state_of_file(self) -> tuple[int, int, int] | None:
        """What differs after a change; `None` without the file."""
        try:
            status = self._path.stat() if self._path else None
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino) if status else None

    async def _keep_polling(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self.refresh()
