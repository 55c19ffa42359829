"""What the settings of jobs, and of the addresses that clients name, must be."""

import ipaddress
import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tutti_server.app.errors import SettingsError
from tutti_server.plugins.accounts.database.database_settings import make_database

if TYPE_CHECKING:
    from tutti_server.app.files.addresses import AddressRules
    from tutti_server.app.files.fetch import RecordingFetcher
    from tutti_server.app.service.settings import Settings
    from tutti_server.plugins.accounts.database.database import Database
    from tutti_server.plugins.accounts.jobs.spool import Recall, Spool

logger = logging.getLogger(__name__)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

DAY_S = 86_400.0
S3 = "s3://"
"""How the address of a bucket begins."""


def check_jobs(settings: "Settings") -> None:
    """Check these settings.

    Raises:
        SettingsError: a value is not valid, or has no effect without another one.
    """
    private_networks(settings)
    _check_spool(settings.job_spool)
    for name in ("url_hosts", "callback_hosts"):
        for host in _listed(getattr(settings, name)):
            if not host.isascii() or set(host) & set("/: @") or "*" in host.removeprefix("*"):
                raise SettingsError(f"{name}: expected names such as example.org or *.example.org, got {host!r}")
            if host.startswith("*") and host != "*" and not host.startswith("*."):
                raise SettingsError(f"{name}: expected *.example.org for all names below one, got {host!r}")
    if settings.url_hosts and not _listed(settings.url_types):
        raise SettingsError("url_types: expected content types, as url_hosts is set, got none")
    if not settings.jobs:
        for name in ("job_spool", "job_secret", "callback_hosts"):
            if getattr(settings, name):
                raise SettingsError(f"{name}: expected jobs with it, as nothing else uses it")


def private_networks(settings: "Settings") -> tuple[Network, ...]:
    """The private networks that addresses of clients may lead to."""
    try:
        return tuple(map(ipaddress.ip_network, _listed(settings.private_networks)))
    except ValueError as error:
        raise SettingsError(f"private_networks: expected networks such as 10.1.0.0/16, got {error}") from error


def spool(settings: "Settings", database: "Database | None" = None) -> "Spool":
    """What keeps the recordings. Nothing is written yet.

    Args:
        settings: of the service.
        database: remembers the folder over a restart, so that none is taken for it while its disk is not mounted.

    Raises:
        SettingsError: a variable of S3 has no valid value.
    """
    from tutti_server.plugins.accounts.jobs.spool import FolderSpool, SpoolAway, recall_nothing

    if not settings.job_spool.startswith(S3):
        folder = Path(settings.job_spool).expanduser() if settings.job_spool else settings.data_path / "jobs"
        return FolderSpool(folder, recall_of(database) if database else recall_nothing)
    # Imported here because its client is an extra.
    from tutti_server.plugins.accounts.jobs.s3_spool import S3Spool

    try:
        return S3Spool(*_bucket(settings.job_spool))
    except SpoolAway as error:
        raise SettingsError(f"job_spool: expected variables AWS_… that can be used; {error}") from None


def recall_of(database: "Database") -> "Recall":
    """Has the database remember the folder of the recordings."""
    from tutti_server.plugins.accounts.database.database import DatabaseAway
    from tutti_server.plugins.accounts.jobs import job_store
    from tutti_server.plugins.accounts.jobs.spool import FolderUnknown

    def recall(found: str | None) -> str | None:
        if found is None and not database.is_there:
            return None
        try:
            return database.run_here(lambda connection: job_store.folder_mark(connection, found))
        except DatabaseAway as error:
            raise FolderUnknown(f"the database does not say which folder has the recordings: {error}") from error

    return recall


def try_spool(settings: "Settings") -> None:
    """Keep, read and delete something where recordings are kept, which blocks.

    A folder is not tried while the database is away: only the database knows which folder has the recordings.

    Raises:
        SettingsError: it does not work.
    """
    from tutti_server.plugins.accounts.jobs.spool import FolderUnknown, try_out

    database = make_database(settings)
    try:
        try_out(spool(settings, database))
    except FolderUnknown as error:
        logger.warning("where recordings are kept is not tried: %s", error)
    except OSError as error:
        place = settings.job_spool or settings.data_path / "jobs"
        raise SettingsError(f"job_spool: expected to write, read, list and delete in {place}; {error}") from None
    finally:
        database.close_here()


def _check_spool(text: str) -> None:
    if "://" not in text:
        return
    if not text.startswith(S3) or not _bucket(text)[0]:
        raise SettingsError(f"job_spool: expected a folder or s3://bucket/folder, got {text!r}")
    if find_spec("obstore") is None:
        raise SettingsError("job_spool: needs obstore: pip install 'tutti-asr[s3]'")


def _bucket(address: str) -> tuple[str, str]:
    """The bucket and the folder of an address; no bucket if it has more than these."""
    bucket, _, folder = address.removeprefix(S3).partition("/")
    is_valid = not set(address) & set("?#@%") and not set(bucket) & set(":")
    return (bucket, folder.strip("/")) if is_valid else ("", "")


def address_rules(settings: "Settings", name: str) -> "AddressRules":
    """The rules for addresses whose hosts are listed in the setting with this name."""
    from tutti_server.app.files.addresses import AddressRules

    return AddressRules(
        name,
        _listed(getattr(settings, name)),
        private_networks=private_networks(settings),
        allows_http=settings.allow_http_urls,
    )


def fetcher(settings: "Settings") -> "RecordingFetcher":
    """Fetches recordings within the operator's limits."""
    from tutti_server.app.files.fetch import RecordingFetcher

    return RecordingFetcher(
        rules=address_rules(settings, "url_hosts"),
        types=_listed(settings.url_types),
        max_bytes=settings.max_upload_mb * 1_000_000,
        timeout_s=settings.url_timeout_s,
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each.strip().lower() for each in text.split(",") if each.strip())
