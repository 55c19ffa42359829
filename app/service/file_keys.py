"""The keys of a TOML file, which is read again when it has changed."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.api_keys import ApiKey, read_api_keys
from tutti_server.app.service.followed_files import FollowedFiles

logger = logging.getLogger(__name__)


class FileKeys(FollowedFiles):
    """Knows the keys of a file. A change that cannot be used leaves the keys as they were."""

    def __init__(
        self,
        path: Path | None,
        check: Callable[[Sequence[ApiKey]], None] = lambda keys: None,
        known: Sequence[ApiKey] = (),
    ) -> None:
        """Read the file.

        Args:
            check: raises a `SettingsError` for keys that this service cannot use.
            known: the keys that the file had before, for a process that starts again when it is gone.

        Raises:
            SettingsError: the file cannot be read and no keys are known from before, or its keys cannot be used.
        """
        super().__init__("keys", (path,) if path else ())
        self._path = path
        self._check = check
        self.by_key: Mapping[str, ApiKey] = self._read(known)
        """The keys, by the text that clients send. A change replaces the mapping."""

    @property
    def keys(self) -> tuple[ApiKey, ...]:
        """The keys in the order of the file."""
        return tuple(self.by_key.values())

    async def load(self) -> None:
        """Read the file; see `FollowedFiles.load`."""
        self.by_key = await asyncio.to_thread(self._read)

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
