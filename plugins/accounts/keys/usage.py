"""How much audio each key has used, in the database: counted once, by key, day and kind.

Whoever uses audio is a source: one live session, upload or job. It reports all of its audio so far, again and again,
and the database adds the difference to what it knows. So a report that is repeated, because its answer was lost, adds
nothing, and one that is lost is made up for by the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from sqlalchemy import Column, Connection, Date, Float, Integer, String, Table, bindparam, delete, func, select, update

from tutti_server.app.service.account_service import Kind
from tutti_server.plugins.accounts.database.database import insert_into, metadata

KEEP_SOURCES = timedelta(days=2)
"""How long a source is remembered after its last report, or after the day on which it was known to be open.

A gateway looks every day at what is open there. Of what has ended a report comes much sooner, or never.
"""
MAX_IN_STATEMENT = 500
"""Sources that one statement names."""

_usage = Table(
    "tutti_usage",
    metadata,
    Column("account", String, primary_key=True),
    Column("day", Date, primary_key=True),
    Column("kind", String, primary_key=True),
    Column("audio_s", Float, nullable=False),
    Column("n", Integer, nullable=False),
)
_sources = Table(
    "tutti_usage_sources",
    metadata,
    Column("id", String, primary_key=True),
    Column("audio_s", Float, nullable=False),
    Column("day", Date, nullable=False, index=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a source has used so far."""

    source: str
    """Tells it from all other sources."""
    account: str
    """The account of the key: `usage_account`."""
    kind: Kind
    audio_s: float
    """All of its audio, in seconds."""
    day: date
    """The day in UTC on which the audio since its last report was used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What the clients of one key used on one day, of one kind."""

    account: str
    day: date
    kind: str
    audio_s: float
    n: int
    """Live sessions, uploads or jobs that had audio. Each counts on its first day."""


def save(connection: Connection, reports: Sequence[Report]) -> None:
    """Add what is new in these reports, at least one. A second call with the same reports changes nothing."""
    # In this order, so that two gateways that have the same rows to change wait for each other, and are not stopped.
    reports = sorted({each.source: each for each in reports}.values(), key=lambda each: each.source)
    known = _known(connection, reports)
    grown = [each for each in reports if each.audio_s > known[each.source]]
    if not grown:
        return
    changed = update(_sources).where(_sources.c.id == bindparam("source"))
    rows = [{"source": each.source, "new_audio_s": each.audio_s, "new_day": each.day} for each in grown]
    connection.execute(changed.values(audio_s=bindparam("new_audio_s"), day=bindparam("new_day")), rows)
    for (account, day, kind), (audio_s, n) in sorted(_sums(grown, known).items()):
        inserted = insert_into(connection, _usage).values(account=account, day=day, kind=kind, audio_s=audio_s, n=n)
        added = {"audio_s": _usage.c.audio_s + inserted.excluded.audio_s, "n": _usage.c.n + inserted.excluded.n}
        connection.execute(inserted.on_conflict_do_update(index_elements=list(_usage.primary_key), set_=added))


def forget_sources(connection: Connection, today: date, open_sources: Sequence[str] = ()) -> None:
    """Forget the sources, but open ones, whose last report is older than `KEEP_SOURCES`. Their usage stays."""
    for at in range(0, len(open_sources), MAX_IN_STATEMENT):
        ids = open_sources[at : at + MAX_IN_STATEMENT]
        connection.execute(update(_sources).where(_sources.c.id.in_(ids)).values(day=today))
    connection.execute(delete(_sources).where(_sources.c.day < today - KEEP_SOURCES))


def used(connection: Connection, from_day: date, to_day: date, account: str | None = None) -> list[Used]:
    """What was used on these days, both included, by day, account and kind; of all accounts, or of one."""
    query = select(_usage).where(_usage.c.day >= from_day, _usage.c.day <= to_day)
    if account is not None:
        query = query.where(_usage.c.account == account)
    rows = connection.execute(query.order_by(_usage.c.day, _usage.c.account, _usage.c.kind))
    return [Used(**row._mapping) for row in rows]


def audio_since(connection: Connection, account: str, days: Sequence[date]) -> list[float]:
    """The seconds of audio that an account has used since each of these days."""
    total = func.coalesce(func.sum(_usage.c.audio_s), 0.0)
    query = select(total).where(_usage.c.account == account)
    return [float(connection.execute(query.where(_usage.c.day >= day)).scalar_one()) for day in days]


def _known(connection: Connection, reports: Sequence[Report]) -> dict[str, float]:
    """The audio that the sources of these reports have reported before; their rows are locked after this."""
    rows = [{"id": each.source, "audio_s": 0.0, "day": each.day} for each in reports]
    connection.execute(insert_into(connection, _sources).on_conflict_do_nothing(), rows)
    known: dict[str, float] = {}
    for at in range(0, len(reports), MAX_IN_STATEMENT):
        ids = [each.source for each in reports[at : at + MAX_IN_STATEMENT]]
        query = select(_sources.c.id, _sources.c.audio_s).where(_sources.c.id.in_(ids)).order_by(_sources.c.id)
        known |= {row.id: row.audio_s for row in connection.execute(query.with_for_update())}
    return known


def _sums(reports: Sequence[Report], known: dict[str, float]) -> dict[tuple[str, date, str], tuple[float, int]]:
    """What is new in these reports, by account, day and kind."""
    sums: dict[tuple[str, date, str], tuple[float, int]] = {}
    for each in reports:
        audio_s, n = sums.get((each.account, each.day, each.kind), (0.0, 0))
        more_s = each.audio_s - known[each.source]
        sums[each.account, each.day, each.kind] = (audio_s + more_s, n + (not known[each.source]))
    return sums
