"""The plug-in of accounts: API keys of a database, how much audio each has used, and jobs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tutti_server.app.server.plugins import Plugin
from tutti_server.app.service.settings import Settings
from tutti_server.plugins.accounts.settings import AccountSettings

if TYPE_CHECKING:
    import click
    from starlette.routing import BaseRoute

    from tutti_server.app.service.account_service import AccountService
    from tutti_server.app.service.service import Service


class AccountPlugin(Plugin):
    """Serves keys of a database and jobs, where the settings ask for them."""

    name = "accounts"
    settings = AccountSettings

    # What serves is imported where it is used, so that `tutti serve --help` is quick.

    def commands(self) -> "Sequence[click.Command]":
        """See `Plugin.commands`."""
        from tutti_server.plugins.accounts.keys.commands import keys

        return (keys,)

    async def prepare(self, settings: Settings) -> None:
        """See `Plugin.prepare`. Moves the schema of the database forward, and tries where recordings are kept."""
        own = settings.of(AccountSettings)
        if not own.uses_database:
            return
        import asyncio

        from tutti_server.plugins.accounts.storage import check_database, keep_data_private, try_spool

        await asyncio.to_thread(keep_data_private, own)
        await check_database(own)
        if own.jobs:
            await asyncio.to_thread(try_spool, own)

    def accounts(self, service: "Service") -> "AccountService":
        """See `Plugin.accounts`."""
        from tutti_server.plugins.accounts.accounts import Accounts

        return Accounts(service)

    def routes(self, service: "Service") -> "Sequence[BaseRoute]":
        """See `Plugin.routes`."""
        from tutti_server.plugins.accounts.routes import routes

        return routes()

    def openapi(self) -> Mapping[str, Any]:
        """See `Plugin.openapi`."""
        from tutti_server.plugins.accounts.openapi import PATHS

        return PATHS


plugin = AccountPlugin()
