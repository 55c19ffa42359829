"""The database of the settings: what uses it, and that a start ends where its tables or its seals cannot be used."""

import logging
import shlex
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tutti_server.app.errors import SettingsError
from tutti_server.plugins.accounts.database.address import database_address, file_address

if TYPE_CHECKING:
    from tutti_server.app.service.settings import Settings
    from tutti_server.plugins.accounts.database.database import Database
    from tutti_server.plugins.accounts.database.seals import Seals

logger = logging.getLogger(__name__)


def uses_database(settings: "Settings") -> bool:
    """Whether the service keeps anything over a restart."""
    return settings.jobs or settings.database_keys


def make_database(settings: "Settings", folder: str | None = None) -> "Database":
    """The database of these settings, which is opened when it is first used.

    Args:
        settings: of the service.
        folder: the folder that the gateways of one server share while it runs. It tells a gateway that is restarted not
            to create missing tables.
    """
    # Imported here: it takes a moment, and many services keep nothing.
    from tutti_server.plugins.accounts.database.database import Database

    url = settings.database_url
    was_open = Path(folder) / "database-was-open" if folder else None
    return Database(database_address(url) if url else file_address(settings.data_path), was_open)


def make_seals(settings: "Settings") -> "Seals":
    """What seals the secrets of the database.

    Raises:
        SettingsError: the file of the keys cannot be read, or has no keys, or what seals is not installed.
    """
    return seals_of_file(settings.secret_keys_file)


def seals_of_file(name: str) -> "Seals":
    """What seals with the keys of this file; nothing is sealed without a name. Raises as `make_seals`."""
    from tutti_server.plugins.accounts.database.seals import Seals, read_key

    if not name:
        return Seals()
    if find_spec("cryptography") is None:
        raise SettingsError("secret_keys_file: needs cryptography: pip install 'tutti-asr[sealing]'")
    try:
        lines = [each for each in Path(name).expanduser().read_text().splitlines() if each.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"secret_keys_file: expected a text file with keys, got {error}") from error
    try:
        keys = [read_key(each) for each in lines]
    except ValueError as error:
        # A line itself is not shown: it may be almost right.
        expected = "32 bytes in base64 on each line, as `openssl rand -base64 32` writes them"
        raise SettingsError(f"secret_keys_file: expected {expected}, got {error}") from None
    if not keys:
        raise SettingsError(f"secret_keys_file: expected keys, got an empty file {name}")
    return Seals(keys)


def keep_data_private(settings: "Settings") -> None:
    """Take what an older release has kept in a folder from other users of the machine, and close its folders.

    A folder that the operator has named may be for other things, too: it keeps its mode, and the log says that it is
    open and how to close it.
    """
    from tutti_server.plugins.accounts.database.private_files import close_folder, is_open_to_everyone
    from tutti_server.plugins.accounts.jobs.job_settings import spool
    from tutti_server.plugins.accounts.jobs.spool import FolderSpool

    if not uses_database(settings):
        return
    own, named = ([], [settings.data_path]) if settings.data_folder else ([settings.data_path], [])
    if settings.jobs and isinstance(kept := spool(settings), FolderSpool):
        kept.keep_private()
        (named if settings.job_spool else own).append(kept.folder)
    for folder in own:
        close_folder(folder)
    for folder in filter(is_open_to_everyone, named):
        logger.warning("every user of this machine may look into %s: chmod o-rwx %s", folder, shlex.quote(f"{folder}"))


async def check_database(settings: "Settings") -> None:
    """Move the schema of the database forward, before any process serves clients.

    Raises:
        SettingsError: its tables are those of a newer release, or some of them are missing; or it has secrets that were
            sealed with a key which is missing.
    """
    if not uses_database(settings):
        return
    from tutti_server.plugins.accounts.database.database import DatabaseAway, DatabaseUnfit
    from tutti_server.plugins.accounts.jobs import job_store
    from tutti_server.plugins.accounts.keys import key_records

    database, seals = make_database(settings), make_seals(settings)
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
