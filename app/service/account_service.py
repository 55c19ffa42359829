"""What a plug-in may know of keys beside those of the settings: their records, the audio that they use, their jobs.

`NO_ACCOUNTS` is the one of a service without such a plug-in.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from datetime import date
from typing import IO, Literal, Protocol

from tutti_server.app.jobs import Job, JobKind, Request
from tutti_server.app.service.api_keys import ApiKey

Kind = Literal["live", "file", "job"]
"""What audio is used by."""


class KeyRecord(Protocol):
    """A key that may be used. The key itself is not known, only its hash."""

    @property
    def id(self) -> str:
        """Tells it from all other keys; client secrets that it made have it."""
        ...

    @property
    def api_key(self) -> ApiKey:
        """The name, the scopes and the limits of the key."""
        ...


class KeyDirectory(Protocol):
    """Keys that are made and withdrawn while the service runs."""

    def find(self, key: str | None) -> KeyRecord | None:
        """The record of a key that may be used; `None` for every other key.

        Raises:
            RequestError: it cannot be known at present.
        """
        ...

    def find_id(self, id_: str) -> KeyRecord | None:
        """The record with this id, if its key may be used; raises like `find`."""
        ...

    def signing_key(self, id_: str) -> str:
        """What signs the client secrets of a record that was found; raises like `find`."""
        ...


class Meters(Protocol):
    """Counts the audio of all keys."""

    def counting(self, key: ApiKey | None, kind: Kind, audio_s: Callable[[], float]) -> AbstractContextManager[None]:
        """Count the audio of one session, upload or job while the context is open. A key without a name is `None`."""
        ...


class Usage(Meters, Protocol):
    """Counts the audio of all keys, for good."""

    async def audio_since(self, key: ApiKey, days: Sequence[date]) -> list[float]:
        """The seconds of audio that a key has used since each of these days; nothing while that is not known."""
        ...


class Jobs(Protocol):
    """Takes in the jobs of clients."""

    def check_addresses(self, request: Request) -> None:
        """Check the addresses of a job, as far as can be known without the network.

        Raises:
            RequestError: they are not allowed.
        """
        ...

    async def submit(
        self, owner: str, key: ApiKey | None, request: Request, file: IO[bytes] | None
    ) -> tuple[Job, bool]:
        """Take a job in, and return it with whether it is new.

        Args:
            owner: the account that alone sees it.
            key: that of its client; `None` for one without a name.
            file: the recording, if it was sent in.

        Raises:
            RequestError: it cannot be taken in at present.
            KeyLimitExceeded: the key has as many jobs as it may have.
        """
        ...


class AccountService:
    """The accounts of one service. This class knows nothing of any; each member may be left as it is."""

    @property
    def directory(self) -> KeyDirectory | None:
        """Keys that are records; `None` if only keys of the settings are accepted."""
        return None

    @property
    def usage(self) -> Usage | None:
        """Counts the audio of all keys for good; `None` where it is not kept."""
        return None

    @property
    def meters(self) -> Meters | None:
        """Counts the audio of all keys, for good or not; `None` where it is not counted."""
        return self.usage

    @property
    def jobs(self) -> Jobs | None:
        """The recordings that are transcribed later; `None` where none are taken in."""
        return None

    @property
    def problems(self) -> Sequence[str]:
        """What is missing at present, for the operator."""
        return ()

    def running(self) -> AbstractAsyncContextManager[None]:
        """Know keys and count what they use. It is open while clients may use the service."""
        return nullcontext()

    def doing_jobs(self, kinds: Mapping[str, JobKind]) -> AbstractAsyncContextManager[None]:
        """Do jobs of these kinds, by name. It starts after, and ends before all else of the service."""
        return nullcontext()


NO_ACCOUNTS = AccountService()
