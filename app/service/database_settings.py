"""The database of the settings: what uses it, and that a start ends where its tables cannot be used."""

from typing import TYPE_CHECKING

from app.database.address import database_address, file_address
from app.errors import SettingsError

if TYPE_CHECKING:
    from app.database.database import Database
    from app.service.settings import Settings


def uses_database(settings: "Settings") -> bool:
    """Whether the service keeps anything over a restart."""
    return settings.jobs or settings.database_keys


def make_database(settings: "Settings") -> "Database":
    """The database of these settings, which is opened when it is first used."""
    # Imported here: it takes a moment, and many services keep nothing.
    from app.database.database import Database

    url = settings.database_url
    return Database(database_address(url) if url else file_address(settings.data_path))


async def check_database(settings: "Settings") -> None:
    """Move the schema of the database forward, before any process serves clients.

    Raises:
        SettingsError: its tables are those of a newer release, or some of them are missing.
    """
    if not uses_database(settings):
        return
    from app.database.database import DatabaseUnfit

    database = make_database(settings)
    try:
        await database.check()
    except DatabaseUnfit as error:
        raise SettingsError(str(error)) from error
    finally:
        await database.close()
