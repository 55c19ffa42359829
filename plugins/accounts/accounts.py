"""The accounts of one service: the keys of its database, what all keys use, and its jobs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING

from starlette.requests import Request

from tutti_server.app.background import in_background, repeat
from tutti_server.app.errors import RequestError, shorten
from tutti_server.app.jobs import JobKind
from tutti_server.app.service.account_service import AccountService
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.app.service.service import Service
from tutti_server.plugins.accounts.database.seals import seals_of_file
from tutti_server.plugins.accounts.jobs import wire
from tutti_server.plugins.accounts.jobs.job_metrics import JobMetrics
from tutti_server.plugins.accounts.jobs.work import job_kind
from tutti_server.plugins.accounts.keys.key_metrics import KeyMetrics
from tutti_server.plugins.accounts.keys.metered_usage import NOTE_EVERY_S, MeteredUsage
from tutti_server.plugins.accounts.settings import AccountSettings
from tutti_server.plugins.accounts.storage import make_database

if TYPE_CHECKING:
    from tutti_server.plugins.accounts.database.database import Database
    from tutti_server.plugins.accounts.jobs.job_service import JobService
    from tutti_server.plugins.accounts.keys.key_directory import KeyDirectory
    from tutti_server.plugins.accounts.keys.key_records import KeyRecord
    from tutti_server.plugins.accounts.keys.usage_counter import UsageCounter


class Accounts(AccountService):
    """What the settings ask for: keys of the database with their usage, jobs, both or nothing.

    What needs the database is imported where it is used, as most services use none.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.settings.of(AccountSettings)
        self._key_metrics = KeyMetrics(service.metrics.registry)
        self._job_metrics = JobMetrics(service.metrics.registry)

    @cached_property
    def database(self) -> "Database":
        """What is kept over a restart. It is opened, and its file is made, when it is first used."""
        return make_database(self._settings, self._service.shared.metrics_folder)

    @cached_property
    def directory(self) -> "KeyDirectory | None":
        """See `AccountService.directory`."""
        if not self._settings.database_keys:
            return None
        from tutti_server.plugins.accounts.keys.key_directory import KeyDirectory

        return KeyDirectory(self.database, seals=seals_of_file(self._settings.secret_keys_file))

    @cached_property
    def usage(self) -> "UsageCounter | None":
        """See `AccountService.usage`. The keys of the file are counted in a database that there is for jobs, too."""
        if not self._settings.database_keys and not (self._settings.jobs and self._has_file):
            return None
        from tutti_server.plugins.accounts.keys.usage_counter import UsageCounter

        self._name_keys()
        return UsageCounter(self.database, self._key_metrics.note)

    @cached_property
    def meters(self) -> MeteredUsage | None:
        """See `AccountService.meters`. Without a database the keys of the file are counted for the metrics alone."""
        if self.usage is not None or not self._has_file:
            return self.usage
        self._name_keys()
        return MeteredUsage(self._key_metrics.note)

    @property
    def _has_file(self) -> bool:
        return bool(self._service.settings.keys_file)

    def _name_keys(self) -> None:
        self._key_metrics.name_first(self._settings.max_key_labels, lambda: self.named_keys)

    @cached_property
    def jobs(self) -> "JobService | None":
        """See `AccountService.jobs`."""
        if not self._settings.jobs:
            return None
        from tutti_server.plugins.accounts.jobs.job_service import JobService

        service = self._service
        return JobService(
            service.settings,
            self.database,
            service.access.limits,
            self._job_metrics,
            self.usage,
            lambda: self.keys,
            lambda: service.transcriber.is_alive and not service.admission.is_draining,
        )

    @property
    def problems(self) -> Sequence[str]:
        """See `AccountService.problems`."""
        return [each.problem for each in (self.directory, self.jobs) if each and each.problem]

    @property
    def named_keys(self) -> Sequence[ApiKey]:
        """The keys with names that are in use: those of the file, then those of the database, the oldest first."""
        return (*self._service.file_keys.keys, *(each.api_key for each in self._records if each.withdrawn is None))

    @property
    def keys(self) -> Sequence[ApiKey]:
        """The keys with names that there are or were, as `named_keys`."""
        return (*self._service.file_keys.keys, *(each.api_key for each in self._records))

    @property
    def names(self) -> dict[str, str]:
        """The names of all keys that there are or were, by their accounts; the newest last."""
        return {key.account: key.name for key in self.keys}

    @property
    def _records(self) -> "Sequence[KeyRecord]":
        return self.directory.records if self.directory else ()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See `AccountService.running`."""
        async with AsyncExitStack() as stack:
            if self._settings.uses_database:
                stack.push_async_callback(self.database.close)
                await self.database.check()
            if self.directory is not None:
                await stack.enter_async_context(self.directory.running())
            if self.meters is not None:
                await stack.enter_async_context(self.meters.running())
                await self._begin_series()
                keys_may_come = repeat(self._begin_series, NOTE_EVERY_S, "the metrics of keys cannot begin")
                await stack.enter_async_context(in_background(keys_may_come))
            yield

    async def _begin_series(self) -> None:
        self._key_metrics.begin_series()

    def doing_jobs(self, kinds: Mapping[str, JobKind]) -> AbstractAsyncContextManager[None]:
        """See `AccountService.doing_jobs`."""
        if self.jobs is None:
            return nullcontext()
        return self.jobs.running({**kinds, wire.KIND: job_kind(self._service)})


def accounts_of(request: Request) -> Accounts:
    """The accounts of the service that a request came to."""
    service: Service = request.app.state.service
    assert isinstance(service.accounts, Accounts), "the paths of this plug-in are served with its accounts"
    return service.accounts


def check_parameters(request: Request, known: Sequence[str]) -> None:
    """Check that the address of a request has these parameters only, so that a misspelled one is not ignored.

    Raises:
        RequestError: it has another one.
    """
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise RequestError(400, f"expected {', '.join(known)}, got {shorten(unknown[0])}", unknown[0])
