"""Jobs in the database: who works on which, and that each ends once.

A gateway that works on a job has a lease, which it renews. The lease of a gateway that has died ends, and another one
takes the job. Every statement that ends a job names the lease, so that a gateway that was taken for dead changes
nothing. The result, the count of its audio and its callback are written in the transaction that ends it.
"""

import json
import time
from collections.abc import Callable, Collection, Sequence
from secrets import token_hex
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Row,
    Select,
    String,
    Table,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    text,
    update,
)

from tutti_server.app.jobs import Job, JobFailed, JobResult, Request, State, Step
from tutti_server.plugins.accounts.database.database import insert_into, metadata
from tutti_server.plugins.accounts.database.seals import Seals, key_id

_jobs = Table(
    "tutti_jobs",
    metadata,
    Column("id", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("account", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("options", String, nullable=False),
    Column("url", String, nullable=False),
    Column("callback_url", String, nullable=False),
    Column("callback_method", String, nullable=False),
    Column("idempotency_key", String),
    Column("fingerprint", String, nullable=False),
    Column("state", String, nullable=False),
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("ended", Float, index=True),
    Column(
        "due", Float, index=True
    ),  # when it may be taken: of a running job the end of its lease; of an ended one null
    Column("lease", String),
    Column("n_attempts", Integer, nullable=False),
    Column("audio_s", Float),
    Column("error_code", String),
    Column("error", String),
    Column("has_audio", Boolean, nullable=False),
    Index("tutti_jobs_of_owner", "owner", "created"),
    Index("tutti_jobs_idempotency", "owner", "idempotency_key", unique=True),
)
_results = Table(
    "tutti_job_results",
    metadata,
    Column("job", String, ForeignKey(_jobs.c.id, ondelete="CASCADE"), primary_key=True),
    Column("content", LargeBinary, nullable=False),
    Column("media_type", String, nullable=False),
    Column("warnings", String),  # a header; null without warnings, and of an older release
)
_turns = Table(
    "tutti_job_turns",
    metadata,
    Column("owner", String, primary_key=True),
    Column("step", String, primary_key=True),
    Column("taken", Float, nullable=False),  # when a job of this owner was taken last for this step
)
_folder = Table(
    "tutti_job_folder",
    metadata,
    Column("id", Integer, primary_key=True),  # there is one row
    Column("mark", String, nullable=False),
)
callbacks = Table(
    "tutti_job_callbacks",
    metadata,
    Column("job", String, ForeignKey(_jobs.c.id, ondelete="CASCADE"), primary_key=True),
    # When it is sent next; none once it is delivered or given up.
    Column("due", Float, index=True),
    Column("n_attempts", Integer, nullable=False),
    Column("outcome", String),
)
"""The reports of ended jobs that are sent, or were."""

DEEPGRAM = "deepgram"
"""The kind of jobs whose options may hold the address of the callback."""
CountUsage = Callable[[Connection, Job], None]
"""Counts the audio of a job that is done, in the transaction that ends it."""


class KeyReused(Exception):
    """An idempotency key was used before, for another job."""


def folder_mark(connection: Connection, found: str | None) -> str | None:
    """The mark of the folder that has the recordings; `None` while none has it.

    Args:
        found: the mark of the folder that is there, which is kept if no other one is; an empty one gets a name.
    """
    if found is not None:
        row = insert_into(connection, _folder).values(id=1, mark=found or token_hex(8))
        connection.execute(row.on_conflict_do_nothing())
    mark: str | None = connection.execute(select(_folder.c.mark)).scalar()
    return mark


def now(connection: Connection) -> float:
    """The time in seconds since 1970, on which all who share the database agree."""
    if connection.dialect.name == "postgresql":
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
    return time.time()


def add(
    connection: Connection,
    job: tuple[str, str, str],
    request: Request,
    *,
    has_audio: bool,
    fingerprint: str,
    idempotency_key: str | None = None,
) -> tuple[Job, bool]:
    """Add a job, and return it; or the one that was added before with this idempotency key.

    Args:
        job: its id, its owner and the account of its audio.
        has_audio: whether the recording is in the spool.
        fingerprint: the same for the same recording and options.
        idempotency_key: the client's own name for this job, if it has one.

    Returns:
        The job, and whether it is new.

    Raises:
        KeyReused: the other job has another fingerprint.
    """
    id_, owner, account = job
    _let_others_wait(connection, owner)
    if idempotency_key is not None:
        same = (_jobs.c.owner == owner) & (_jobs.c.idempotency_key == idempotency_key)
        if (row := connection.execute(select(_jobs).where(same)).first()) is not None:
            if row.fingerprint != fingerprint:
                raise KeyReused
            return _job(row), False
    at = now(connection)
    added = insert(_jobs).values(
        id=id_,
        owner=owner,
        account=account,
        kind=request.kind,
        options=request.options_json,
        url=request.url,
        callback_url=request.callback_url,
        callback_method=request.callback_method,
        idempotency_key=idempotency_key,
        fingerprint=fingerprint,
        state="queued",
        created=at,
        due=at,
        n_attempts=0,
        has_audio=has_audio,
    )
    return _job(connection.execute(added.returning(_jobs)).one()), True


def claim(
    connection: Connection,
    lease: str,
    lease_s: float,
    max_attempts: int,
    step: Step = "decode",
    but: Collection[str] = (),
    on_given_up: Callable[[Job], None] = lambda job: None,
    kinds: Collection[str] | None = None,
) -> Job | None:
    """Take the oldest job that is due of the owner whose turn it is; `None` if no job is due.

    It is the turn of an owner with the fewest jobs that run, and among these of the one that had a turn longest ago. A
    job whose gateways have died `max_attempts` times has failed: it may be what kills them.

    Args:
        lease: names the gateway's work on this job.
        lease_s: how long it lasts unless it is renewed, in seconds.
        max_attempts: how often a job is tried.
        but: owners that have no turn now.
        on_given_up: called with each job that has failed so.
        kinds: the kinds of jobs that may be taken; `None` for all. Others wait for a gateway of a newer release.
    """
    may_be_taken = _needs(step) if kinds is None else _needs(step) & _jobs.c.kind.in_(kinds)
    while True:
        at = now(connection)
        row = _next_due(connection, at, step, may_be_taken, but)
        if row is None:
            return None
        if row.n_attempts >= max_attempts:
            message = f"expected to be done within {max_attempts} attempts, got no result of any"
            on_given_up(_end(connection, _job(row), at, JobFailed("attempts", row.error or message), None))
            continue
        taken = {"state": "running", "started": row.started or at, "due": at + lease_s, "lease": lease}
        changed = update(_jobs).where(_jobs.c.id == row.id).values(**taken, n_attempts=row.n_attempts + 1)
        _note_turn(connection, row.owner, step, at)
        return _job(connection.execute(changed.returning(_jobs)).one())


def renew(connection: Connection, id_: str, lease: str, lease_s: float) -> bool:
    """Renew a lease. Returns whether it was still held."""
    changed = update(_jobs).where(_is_held(id_, lease))
    return connection.execute(changed.values(due=now(connection) + lease_s)).rowcount == 1


def put_back(
    connection: Connection, id_: str, lease: str, wait_s: float, error: str | None = None, *, counts: bool = False
) -> bool:
    """Have a job done later, after `wait_s`, by whoever takes it. Returns whether the lease was still held."""
    changed = update(_jobs).where(_is_held(id_, lease))
    values: dict[str, Any] = {"state": "queued", "lease": None, "due": now(connection) + wait_s}
    values |= {} if counts else {"n_attempts": _jobs.c.n_attempts - 1}
    values |= {} if error is None else {"error": error}
    return connection.execute(changed.values(**values)).rowcount == 1


def undo_claim(connection: Connection, lease: str) -> bool:
    """Give up what was claimed with this lease. Returns whether there was something."""
    id_ = connection.execute(select(_jobs.c.id).where(_jobs.c.lease == lease, _jobs.c.ended.is_(None))).scalar()
    return id_ is not None and put_back(connection, id_, lease, 0.0)


def note_fetched(connection: Connection, id_: str, lease: str) -> bool:
    """Have a job decoded whose recording is in the spool now. Returns whether the lease was still held."""
    connection.execute(update(_jobs).where(_is_held(id_, lease)).values(has_audio=True))
    return put_back(connection, id_, lease, 0.0)


def finish(
    connection: Connection, id_: str, lease: str, outcome: JobResult | JobFailed, count_usage: CountUsage | None = None
) -> Job | None:
    """End a job that is held with this lease. Returns the job as it is now; `None` if the lease is lost.

    A job that was ended with this lease already, by a transaction whose answer was lost, stays as it is.
    """
    query = select(_jobs).where(_jobs.c.id == id_, _jobs.c.lease == lease).with_for_update()
    row = connection.execute(query).first()
    if row is None:
        return None
    if row.ended is not None:
        return _job(row)
    job = _end(connection, _job(row), now(connection), outcome, lease)
    if isinstance(outcome, JobResult):
        values = {"content": outcome.content, "media_type": outcome.media_type, "warnings": outcome.warnings or None}
        connection.execute(insert(_results).values(job=id_, **values))
        if count_usage is not None:
            count_usage(connection, job)
    return job


def cancel(connection: Connection, id_: str, owner: str) -> Job | None:
    """Cancel a job that has not ended; `None` if the owner has no such job."""
    ended = {"state": "cancelled", "ended": now(connection), "due": None, "lease": None}
    is_open = (_jobs.c.id == id_, _jobs.c.owner == owner, _jobs.c.ended.is_(None))
    connection.execute(update(_jobs).where(*is_open).values(**ended))
    return find(connection, id_, owner)


def remove(connection: Connection, id_: str, owner: str) -> bool:
    """Forget a job with its result and its callback. Returns whether the owner had it."""
    return connection.execute(delete(_jobs).where(_jobs.c.id == id_, _jobs.c.owner == owner)).rowcount == 1


def find(connection: Connection, id_: str, owner: str) -> Job | None:
    """The job with this id, if it is this owner's."""
    job = by_id(connection, id_)
    return job if job is not None and job.owner == owner else None


def by_id(connection: Connection, id_: str) -> Job | None:
    """The job with this id, whosever it is."""
    row = connection.execute(select(_jobs).where(_jobs.c.id == id_)).first()
    return _job(row) if row is not None else None


def result(connection: Connection, id_: str) -> JobResult | None:
    """The result of a job that is done; `None` if it has none."""
    query = select(_results, _jobs.c.audio_s).join(_jobs, _jobs.c.id == _results.c.job).where(_results.c.job == id_)
    row = connection.execute(query).first()
    if row is None:
        return None
    warnings = row.warnings or ""
    return JobResult(content=row.content, media_type=row.media_type, audio_s=row.audio_s, warnings=warnings)


def listed(
    connection: Connection, owner: str, n: int, after: Job | None = None, state: State | None = None
) -> list[Job]:
    """Up to `n` jobs of an owner, the newest first, those after a job that was listed before."""
    query: Select[Any] = select(_jobs).where(_jobs.c.owner == owner)
    if state is not None:
        query = query.where(_jobs.c.state == state)
    if after is not None:
        older = (_jobs.c.created == after.created) & (_jobs.c.id < after.id)
        query = query.where(or_(_jobs.c.created < after.created, older))
    return [_job(row) for row in connection.execute(query.order_by(_jobs.c.created.desc(), _jobs.c.id.desc()).limit(n))]


def ids_of(kinds: Collection[str], but: Collection[str]) -> Select[Any]:
    """A query for the ids of the jobs of these kinds and of other owners than these."""
    return select(_jobs.c.id).where(_jobs.c.kind.in_(kinds), _jobs.c.owner.not_in(but))


def n_open(connection: Connection, owner: str) -> int:
    """How many jobs of an owner wait or run."""
    query = select(func.count()).select_from(_jobs).where(_jobs.c.owner == owner, _jobs.c.ended.is_(None))
    return int(connection.execute(query).scalar_one())


def backlog(connection: Connection) -> tuple[int, int, float]:
    """How many jobs wait, how many run, and for how long the oldest has waited, in seconds."""
    query = select(_jobs.c.state, func.count(), func.min(_jobs.c.created)).where(_jobs.c.ended.is_(None))
    states = {state: (n, oldest) for state, n, oldest in connection.execute(query.group_by(_jobs.c.state))}
    n_queued, oldest = states.get("queued", (0, None))
    return n_queued, states.get("running", (0, None))[0], max(now(connection) - oldest, 0.0) if oldest else 0.0


def with_old_audio(connection: Connection, keep_s: float, n: int, after: str = "") -> list[str]:
    """Up to `n` ids, after this one, of jobs that ended so long ago, in seconds, and have their recordings still."""
    is_old = _jobs.c.ended <= now(connection) - keep_s
    query = select(_jobs.c.id).where(_jobs.c.has_audio, is_old, _jobs.c.id > after).order_by(_jobs.c.id)
    return list(connection.execute(query.limit(n)).scalars())


def note_no_audio(connection: Connection, ids: Sequence[str]) -> None:
    """Note that the recordings of these jobs are deleted."""
    connection.execute(update(_jobs).where(_jobs.c.id.in_(ids)).values(has_audio=False))


def remove_old(connection: Connection, keep_s: float) -> int:
    """Forget the jobs that ended so long ago, in seconds, and have no recording. Returns their number."""
    until = now(connection) - keep_s
    # An owner without a turn is the first, as one is whose turn was so long ago.
    connection.execute(delete(_turns).where(_turns.c.taken <= until))
    return connection.execute(delete(_jobs).where(_jobs.c.ended <= until, ~_jobs.c.has_audio)).rowcount


def known_among(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Return which of these ids belong to jobs."""
    return set(connection.execute(select(_jobs.c.id).where(_jobs.c.id.in_(ids))).scalars())


def sealing_keys(connection: Connection) -> set[str]:
    """The ids of the keys with which addresses of jobs are sealed."""
    addresses = connection.execute(select(_jobs.c.url).union(select(_jobs.c.callback_url))).scalars()
    return {id_ for each in addresses if (id_ := key_id(each)) is not None}


def seal_again(connection: Connection, seals: Seals, *, drops_lost: bool = False) -> int:
    """Seal all addresses with the newest key. Returns how many jobs have changed.

    The first release kept the addresses of Deepgram's callbacks among the options as well: there they are removed.

    Args:
        connection: in a transaction.
        drops_lost: whether addresses that no key opens are forgotten. Else they raise `SealKeyMissing`.
    """
    lost = "" if drops_lost else None
    n_changed = 0
    columns = (_jobs.c.id, _jobs.c.kind, _jobs.c.url, _jobs.c.callback_url, _jobs.c.options)
    for row in connection.execute(select(*columns)).all():
        kept = {"url": row.url, "callback_url": row.callback_url, "options": row.options}
        sealed = {name: seals.seal_again(kept[name], lost) for name in ("url", "callback_url")}
        sealed["options"] = _without_callback(row.options) if row.kind == DEEPGRAM else row.options
        if sealed != kept:
            connection.execute(update(_jobs).where(_jobs.c.id == row.id).values(**sealed))
            n_changed += 1
    return n_changed


def _without_callback(options_json: str) -> str:
    options = json.loads(options_json)
    query = options.get("query", [])
    left = [each for each in query if each[0] not in ("callback", "callback_method")]
    if left == query:
        return options_json
    return json.dumps(options | {"query": left}, ensure_ascii=False, sort_keys=True)


def _next_due(
    connection: Connection, at: float, step: Step, may_be_taken: ColumnElement[bool], but: Collection[str]
) -> Row[Any] | None:
    """The job to take next. Where other gateways take all jobs of an owner just now, the next owner has a turn."""
    for owner in _owners_in_turn(connection, at, step, may_be_taken):
        if owner in but:
            continue
        due = select(_jobs).where(_jobs.c.owner == owner, _jobs.c.due <= at, may_be_taken)
        due = due.order_by(_jobs.c.created).limit(1)
        row = connection.execute(due.with_for_update(skip_locked=True)).first()
        if row is not None:
            return row
    return None


def _is_held(id_: str, lease: str) -> ColumnElement[bool]:
    return (_jobs.c.id == id_) & (_jobs.c.lease == lease) & _jobs.c.ended.is_(None)


def _let_others_wait(connection: Connection, owner: str) -> None:
    """Let other transactions that add a job of this owner wait for the end of this one, and see what it has added.

    A transaction of SQLite is alone from its beginning.
    """
    if connection.dialect.name == "postgresql":
        lock = text("SELECT pg_advisory_xact_lock(hashtextextended(:owner, 0))")
        connection.execute(lock, {"owner": owner})


def _needs(step: Step) -> ColumnElement[bool]:
    is_fetched = or_(_jobs.c.url == "", _jobs.c.has_audio)
    return is_fetched if step == "decode" else ~is_fetched


def _owners_in_turn(connection: Connection, at: float, step: Step, may_be_taken: ColumnElement[bool]) -> Sequence[str]:
    """The owners of jobs that are due, the one whose turn it is first."""
    is_due, runs = _jobs.c.due <= at, (_jobs.c.due > at) & _jobs.c.lease.is_not(None)
    last_turn = (_turns.c.owner == _jobs.c.owner) & (_turns.c.step == step)
    open_jobs = select(_jobs.c.owner).outerjoin(_turns, last_turn).where(_jobs.c.due.is_not(None), may_be_taken)
    owners = open_jobs.group_by(_jobs.c.owner, _turns.c.taken).having(func.count(case((is_due, 1))) > 0)
    order = (func.count(case((runs, 1))), func.coalesce(_turns.c.taken, 0.0), func.min(case((is_due, _jobs.c.created))))
    return connection.execute(owners.order_by(*order)).scalars().all()


def _note_turn(connection: Connection, owner: str, step: Step, at: float) -> None:
    turn = insert_into(connection, _turns).values(owner=owner, step=step, taken=at)
    connection.execute(turn.on_conflict_do_update(index_elements=list(_turns.primary_key), set_={"taken": at}))


def _end(connection: Connection, job: Job, at: float, outcome: JobResult | JobFailed, lease: str | None) -> Job:
    """End a job, and have its callback sent. The job keeps the lease of the gateway that has ended it."""
    values: dict[str, Any] = {"ended": at, "due": None, "lease": lease}
    if isinstance(outcome, JobResult):
        values |= {"state": "done", "audio_s": outcome.audio_s, "error": None}
    else:
        values |= {"state": "failed", "error_code": outcome.code, "error": outcome.message}
    changed = update(_jobs).where(_jobs.c.id == job.id).values(**values).returning(_jobs)
    ended = _job(connection.execute(changed).one())
    if job.request.callback_url:
        connection.execute(insert(callbacks).values(job=job.id, due=at, n_attempts=0))
    return ended


def _job(row: Row[Any]) -> Job:
    request = Request(
        kind=row.kind,
        options=json.loads(row.options),
        url=row.url,
        callback_url=row.callback_url,
        callback_method=row.callback_method,
    )
    same = "id owner account state created started ended n_attempts audio_s error_code error has_audio".split()
    return Job(request=request, **{name: getattr(row, name) for name in same})
