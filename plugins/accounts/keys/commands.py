"""`tutti keys`: makes, shows and withdraws the API keys of the database, also while servers run."""

import json
import math
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.app.service.scopes import CLIENT_SCOPES, SCOPES, read_scopes
from tutti_server.app.service.settings import ENV_PREFIX
from tutti_server.plugins.accounts.database.seals import Seals, seals_of_file
from tutti_server.plugins.accounts.settings import AccountSettings

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from tutti_server.plugins.accounts.keys.key_records import KeyRecord

Result = TypeVar("Result")
PLACE = ("data_folder", "database_url", "secret_keys_file")
"""The settings that say where the database is, and what seals its secrets."""
MAX_COUNT = 2**31 - 1
"""The greatest number that PostgreSQL keeps as an integer."""
MAX_KEEP_OLD_MINUTES = 366 * 24 * 60
"""A year: who needs the old key for longer makes another one."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Number(click.FloatRange):
    """The numbers of a range, without the NaN that click finds in every one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


def _database_options(function: _Function) -> _Function:
    """The settings that say where the database is, as `tutti serve` has them."""
    for setting in fields(AccountSettings):
        if setting.name in PLACE:
            function = click.option(
                f"--{setting.name.replace('_', '-')}",
                default="",
                envvar=ENV_PREFIX + setting.name.upper(),
                show_envvar=True,
                help=setting.metadata["help"],
            )(function)
    return function


_as_json = click.option("--json", "as_json", is_flag=True, help="Write JSON.")


@click.group()
def keys() -> None:
    """Make, show and withdraw API keys.

    They are kept in the database of the settings, for servers that run with --database-keys. Those notice every change
    within seconds. NAME is the name or the id of a key.
    """


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help=f"What it may be used for; can be given several times. Default: {', '.join(sorted(CLIENT_SCOPES))}.",
)
@click.option(
    "--sessions", type=click.IntRange(0, MAX_COUNT), help="Live sessions at the same time. Default: any number."
)
@click.option("--hours-per-day", type=_Number(0, MAX_COUNT), help="Hours of audio on one day, in UTC. Default: any.")
@click.option(
    "--hours-per-month", type=_Number(0, MAX_COUNT), help="Hours of audio in one month, in UTC. Default: any."
)
@click.option(
    "--jobs", type=click.IntRange(0, MAX_COUNT), help="Jobs that wait or run at the same time. Default: any number."
)
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    help="The first day, in UTC, on which it is not valid. Default: never.",
)
@_as_json
@_database_options
def create(
    name: str,
    scopes: tuple[str, ...],
    sessions: int | None,
    hours_per_day: float | None,
    hours_per_month: float | None,
    jobs: int | None,
    expires: datetime | None,
    as_json: bool,
    **place: str,
) -> None:
    """Make a key. It is shown once: the database has nothing but its hash."""
    wanted = ApiKey(
        name=name,
        scopes=read_scopes(scopes) if scopes else CLIENT_SCOPES,
        sessions=sessions,
        minutes_per_day=None if hours_per_day is None else hours_per_day * 60,
        minutes_per_month=None if hours_per_month is None else hours_per_month * 60,
        jobs=jobs,
    )
    if expires is not None and expires.date() <= datetime.now(UTC).date():
        raise click.BadParameter(f"expected a day after today, got {expires.date()}", param_hint="--expires")
    until = None if expires is None else expires.replace(tzinfo=UTC).timestamp()
    from tutti_server.plugins.accounts.keys import key_records

    seals = _seals(place)
    key, record = _run(place, lambda connection: key_records.create(connection, wanted, until, seals))
    _show_new(key, record, as_json)


@keys.command("list")
@click.option("--all", "with_withdrawn", is_flag=True, help="Also keys that were withdrawn.")
@_as_json
@_database_options
def list_keys(with_withdrawn: bool, as_json: bool, **place: str) -> None:
    """List the keys, the oldest first."""
    from tutti_server.plugins.accounts.keys import key_records

    _, records = _run(place, key_records.changes)
    shown = [each for each in records if with_withdrawn or each.withdrawn is None]
    if as_json:
        click.echo(json.dumps([_described(each) for each in shown], indent=2))
        return
    for record in shown:
        limits = ", ".join(f"{name} {value:g}" for name, value in _limits(record).items())
        parts = (record.id, record.name, ",".join(sorted(record.api_key.scopes)), _state(record), limits)
        click.echo("  ".join(part for part in parts if part))


@keys.command()
@click.argument("name")
@_database_options
def show(name: str, **place: str) -> None:
    """Show what is known of a key, as JSON. The key itself is not known."""
    from tutti_server.plugins.accounts.keys import key_records

    record = _run(place, lambda connection: key_records.find(connection, name))
    click.echo(json.dumps(_described(record), indent=2))


@keys.command()
@click.argument("name")
@_database_options
def withdraw(name: str, **place: str) -> None:
    """Let a key, and the client secrets that it has made, be used no more. Open sessions go on."""
    from tutti_server.plugins.accounts.keys import key_records

    record = _run(place, lambda connection: key_records.withdraw(connection, name))
    click.echo(f"{record.name} ({record.id}) is withdrawn.")


@keys.command()
@click.argument("name")
@click.option(
    "--keep-old-minutes",
    type=_Number(0, MAX_KEEP_OLD_MINUTES),
    default=0.0,
    show_default=True,
    help="How long the old key is valid yet, while its clients learn the new one.",
)
@_as_json
@_database_options
def rotate(name: str, keep_old_minutes: float, as_json: bool, **place: str) -> None:
    """Give a key another value. Its limits and its usage stay; the client secrets that it has made end."""
    from tutti_server.plugins.accounts.keys import key_records

    seals = _seals(place)
    key, record = _run(place, lambda connection: key_records.rotate(connection, name, keep_old_minutes * 60, seals))
    _show_new(key, record, as_json)


@keys.command()
@click.option(
    "--drop-lost",
    is_flag=True,
    help="Drop what no key opens: addresses of jobs, and the signing keys with which client secrets were made.",
)
@_database_options
def reseal(drop_lost: bool, **place: str) -> None:
    """Seal all secrets of the database with the first key of --secret-keys-file. Servers may run."""
    from tutti_server.plugins.accounts.database.seals import SealKeyMissing
    from tutti_server.plugins.accounts.jobs import job_store
    from tutti_server.plugins.accounts.keys import key_records

    seals = _seals(place)
    if not seals.key_ids:
        raise click.UsageError("expected --secret-keys-file, got none")
    try:
        n_jobs, n_keys = _run(
            place,
            lambda each: (
                job_store.seal_again(each, seals, drops_lost=drop_lost),
                key_records.seal_again(each, seals, drops_lost=drop_lost),
            ),
        )
    except SealKeyMissing as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{n_jobs} jobs and {n_keys} keys are sealed with the key {seals.key_ids[0]} now.")


def _seals(place: dict[str, str]) -> Seals:
    try:
        return seals_of_file(place["secret_keys_file"])
    except SettingsError as error:
        raise click.ClickException(str(error)) from None


def _run(place: dict[str, str], work: "Callable[[Connection], Result]") -> Result:
    # Imported here: it takes a moment, and `--help` needs none of it.
    from tutti_server.plugins.accounts.database.database import DatabaseAway
    from tutti_server.plugins.accounts.keys.key_records import KeyRecordError
    from tutti_server.plugins.accounts.storage import make_database

    try:
        database = make_database(AccountSettings(**place))  # type: ignore[arg-type]  # each of them is text
        try:
            return database.run_here(work)
        finally:
            database.close_here()
    except (DatabaseAway, KeyRecordError, OSError, SettingsError) as error:
        raise click.ClickException(str(error)) from None
    except UnicodeEncodeError as error:
        raise click.ClickException(f"expected a name in UTF-8, got {error.object!r}") from None


def _show_new(key: str, record: "KeyRecord", as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"key": key} | _described(record), indent=2))
        return
    click.echo(f"{record.name} ({record.id}). This key is shown once:", err=True)
    click.echo(key)


def _limits(record: "KeyRecord") -> dict[str, float]:
    values = {
        name: getattr(record.api_key, name) for name in ("sessions", "minutes_per_day", "minutes_per_month", "jobs")
    }
    return {name: value for name, value in values.items() if value is not None}


def _described(record: "KeyRecord") -> dict[str, Any]:
    return {
        "id": record.id,
        "name": record.name,
        "scopes": sorted(record.api_key.scopes),
        "limits": _limits(record),
        "created": _time(record.created),
        "expires": _time(record.expires),
        "withdrawn": _time(record.withdrawn),
        "old_key_until": _time(record.old_until),
    }


def _state(record: "KeyRecord") -> str:
    if record.withdrawn is not None:
        return f"withdrawn {_time(record.withdrawn)}"
    if record.expires is None:
        return ""
    is_over = record.expires <= datetime.now(UTC).timestamp()
    return f"{'expired' if is_over else 'expires'} {_time(record.expires)}"


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
