"""Finds where the settings say that keys and jobs are kept. A start ends where that cannot be used."""

import logging
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from tutti_server.app.errors import SettingsError
from tutti_server.plugins.accounts.database.address import database_address, file_address, folder_of
from tutti_server.plugins.accounts.database.seals import seals_of_file
from tutti_server.plugins.accounts.jobs.spool import (
    S3,
    FolderSpool,
    FolderUnknown,
    Recall,
    Spool,
    SpoolAway,
    bucket_of,
    recall_nothing,
    try_out,
)
from tutti_server.plugins.accounts.settings import AccountSettings

if TYPE_CHECKING:
    from tutti_server.plugins.accounts.database.database import Database

logger = logging.getLogger(__name__)


def make_database(settings: AccountSettings, folder: str | None = None) -> "Database":
    """The database of these settings, which is opened when it is first used.

    Args:
        folder: the folder that the gateways of one server share while it runs. It tells a gateway that is restarted not
            to create missing tables.
    """
    # Imported here: it takes a moment, and many services keep nothing.
    from tutti_server.plugins.accounts.database.database import Database

    url = settings.database_url
    was_open = Path(folder) / "database-was-open" if folder else None
    return Database(database_address(url) if url else file_address(settings.data_path), was_open)


def keep_data_private(settings: AccountSettings) -> None:
    """Take what an older release has kept in a folder from other users of the machine, and close its folders.

    A folder that the operator has named may be for other things, too: it keeps its mode, and the log says that it is
    open and how to close it.
    """
    from tutti_server.plugins.accounts.database.private_files import close_folder, is_open_to_everyone

    own, named = ([], [settings.data_path]) if settings.data_folder else ([settings.data_path], [])
    if settings.jobs and isinstance(kept := spool(settings), FolderSpool):
        kept.keep_private()
        (named if settings.job_spool else own).append(kept.folder)
    for folder in own:
        close_folder(folder)
    for folder in filter(is_open_to_everyone, named):
        logger.warning("every user of this machine may look into %s: chmod o-rwx %s", folder, shlex.quote(f"{folder}"))


async def check_database(settings: AccountSettings) -> None:
    """Move the schema of the database forward, before any process serves clients.

    Raises:
        SettingsError: its tables are those of a newer release, or some of them are missing; or it has secrets that were
            sealed with a key which is missing.
    """
    from tutti_server.plugins.accounts.database.database import DatabaseAway, DatabaseUnfit
    from tutti_server.plugins.accounts.jobs import job_store
    from tutti_server.plugins.accounts.keys import key_records

    database, seals = make_database(settings), seals_of_file(settings.secret_keys_file)
    try:
        if await database.check():
            needed = await database.run(lambda each: job_store.sealing_keys(each) | key_records.sealing_keys(each))
            _check_sealing_keys(needed, seals.key_ids)
    except DatabaseUnfit as error:
        raise SettingsError(str(error)) from error
    except DatabaseAway as error:
        logger.warning("it is not known with which keys the database is sealed: %s", error)
    finally:
        await database.close()


def _check_sealing_keys(needed: Collection[str], known: Collection[str]) -> None:
    if missing := set(needed) - set(known):
        expected = f"the key {min(missing)}, with which secrets of the database are sealed"
        got = f"the keys {', '.join(known)}" if known else "no key"
        raise SettingsError(f"secret_keys_file: expected {expected}, got {got}")


def spool(settings: AccountSettings, database: "Database | None" = None) -> Spool:
    """What keeps the recordings. Nothing is written yet.

    Args:
        database: remembers the folder over a restart, so that none is taken for it while its disk is not mounted.

    Raises:
        SettingsError: a variable of S3 has no valid value.
    """
    if not settings.job_spool.startswith(S3):
        folder = folder_of("job_spool", settings.job_spool) if settings.job_spool else settings.data_path / "jobs"
        return FolderSpool(folder, recall_of(database) if database else recall_nothing)
    # Imported here because its client is an extra.
    from tutti_server.plugins.accounts.jobs.s3_spool import S3Spool

    try:
        return S3Spool(*bucket_of(settings.job_spool))
    except SpoolAway as error:
        raise SettingsError(f"job_spool: expected variables AWS_… that can be used; {error}") from None


def recall_of(database: "Database") -> Recall:
    """Has the database remember the folder of the recordings."""
    from tutti_server.plugins.accounts.database.database import DatabaseAway
    from tutti_server.plugins.accounts.jobs import job_store

    def recall(found: str | None) -> str | None:
        if found is None and not database.is_there:
            return None
        try:
            return database.run_here(job_store.folder_mark, found)
        except DatabaseAway as error:
            raise FolderUnknown(f"the database does not say which folder has the recordings: {error}") from error

    return recall


def try_spool(settings: AccountSettings) -> None:
    """Keep, read and delete something where recordings are kept, which blocks.

    A folder is not tried while the database is away: only the database knows which folder has the recordings.

    Raises:
        SettingsError: it does not work.
    """
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
