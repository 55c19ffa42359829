"""API keys as records of the database: how they are made, changed and withdrawn.

The database holds the SHA-256 of a key and never the key. A slow hash, as passwords need it, would add nothing: a key
is 256 random bits, which cannot be guessed from its hash. With the quick one a flood of wrong keys costs little.
"""

import hashlib
import time
from dataclasses import dataclass, field
from secrets import token_hex, token_urlsafe
from typing import Any

from sqlalchemy import Column, Connection, Float, Integer, Row, String, Table, func, insert, or_, select, update

from tutti_server.app.service.api_keys import MAX_NAME_CHARS, UNNAMED, ApiKey, is_name
from tutti_server.app.service.scopes import SCOPES, Scope
from tutti_server.plugins.accounts.database.database import insert_into, metadata
from tutti_server.plugins.accounts.database.seals import NO_SEALS, Seals, key_id

PREFIX = "tutti_"
"""The first characters of every key, so that people and scanners know a lost one when they see it."""
KEY_BYTES = 32

_keys = Table(
    "tutti_keys",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("hash", String, nullable=False, unique=True),
    Column("old_hash", String),
    Column("old_until", Float),
    Column("signing_key", String, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float),
    Column("withdrawn", Float),
    Column("scopes", String, nullable=False),
    Column("sessions", Integer),
    Column("minutes_per_day", Float),
    Column("minutes_per_month", Float),
    Column("jobs", Integer),
    Column("version", Integer, nullable=False, index=True),
)
_versions = Table(
    "tutti_keys_version",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("version", Integer, nullable=False),
)
"""One row with the number of changes so far. Every change locks it, so that they are seen in their order."""


class KeyRecordError(Exception):
    """A record cannot be made or changed as the operator wants. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """One key, as the database knows it. Times are in seconds since 1970."""

    id: str
    hash: str = field(repr=False)
    old_hash: str | None = field(repr=False)
    """The hash of the key before a rotation."""
    old_until: float | None
    """The time at which the key before a rotation ends."""
    signing_key: str = field(repr=False)
    """Signs the client secrets of its owner, and may be sealed. It is not the key, which the server forgets."""
    created: float
    expires: float | None
    withdrawn: float | None
    api_key: ApiKey
    """The name, the scopes and the limits of the key."""
    version: int
    """The number of its last change."""

    @property
    def name(self) -> str:
        """The name that the operator has given it."""
        return self.api_key.name

    def is_valid(self, now: float) -> bool:
        """Whether it may be used at this time."""
        return self.withdrawn is None and (self.expires is None or now < self.expires)

    def accepts(self, hash_: str, now: float) -> bool:
        """Whether a key with this hash, which was found by it, may be used at this time."""
        is_old = hash_ == self.old_hash
        return self.is_valid(now) and not (is_old and self.old_until is not None and now >= self.old_until)


def hash_of(key: str) -> str:
    """The hash by which a key is found. That the time of the search depends on the hash shows nothing of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def create(
    connection: Connection, wanted: ApiKey, expires: float | None = None, seals: Seals = NO_SEALS
) -> tuple[str, KeyRecord]:
    """Make a key with this name, these scopes and these limits. Returns the key, which is shown once, and its record.

    Raises:
        KeyRecordError: the name is taken, or is no name.
    """
    version = _next_version(connection)
    _check_name(connection, wanted.name)
    key = _new_key()
    id_ = f"key_{token_hex(8)}"
    connection.execute(
        insert(_keys).values(
            id=id_,
            name=wanted.name,
            hash=hash_of(key),
            signing_key=seals.seal(token_hex(KEY_BYTES)),
            created=time.time(),
            expires=expires,
            scopes=",".join(sorted(wanted.scopes)),
            sessions=wanted.sessions,
            minutes_per_day=wanted.minutes_per_day,
            minutes_per_month=wanted.minutes_per_month,
            jobs=wanted.jobs,
            version=version,
        )
    )
    return key, find(connection, id_)


def withdraw(connection: Connection, name: str) -> KeyRecord:
    """Let a key be used no more; raises like `find`. A second call changes nothing."""
    version = _next_version(connection)
    record = find(connection, name)
    if record.withdrawn is None:
        _change(connection, record, version, withdrawn=time.time())
    return find(connection, record.id)


def rotate(
    connection: Connection, name: str, keep_old_s: float = 0.0, seals: Seals = NO_SEALS
) -> tuple[str, KeyRecord]:
    """Give a record another key, and a new signing key for client secrets.

    Args:
        name: the name or the id of the record.
        keep_old_s: how long the old key is valid yet, in seconds.

    Returns:
        The new key, which is shown once, and the record.

    Raises:
        KeyRecordError: there is no such record, or it was withdrawn.
    """
    version = _next_version(connection)
    record = find(connection, name)
    if record.withdrawn is not None:
        raise KeyRecordError(f"expected a key that is in use, got {record.name}, which was withdrawn")
    key = _new_key()
    _change(
        connection,
        record,
        version,
        hash=hash_of(key),
        old_hash=record.hash if keep_old_s else None,
        old_until=time.time() + keep_old_s if keep_old_s else None,
        signing_key=seals.seal(token_hex(KEY_BYTES)),
    )
    return key, find(connection, record.id)


def sealing_keys(connection: Connection) -> set[str]:
    """The ids of the keys with which signing keys are sealed."""
    found = connection.execute(select(_keys.c.signing_key)).scalars()
    return {id_ for each in found if (id_ := key_id(each)) is not None}


def seal_again(connection: Connection, seals: Seals, *, drops_lost: bool = False) -> int:
    """Seal all signing keys with the newest key. Returns how many have changed, which servers learn of.

    Args:
        connection: in a transaction.
        drops_lost: whether new signing keys take the place of those that no key opens, which ends the client secrets
            of their owners. Else they raise `SealKeyMissing`.
    """
    version = _next_version(connection)
    n_changed = 0
    for record in changes(connection)[1]:
        sealed = seals.seal_again(record.signing_key, token_hex(KEY_BYTES) if drops_lost else None)
        if sealed != record.signing_key:
            _change(connection, record, version, signing_key=sealed)
            n_changed += 1
    return n_changed


def find(connection: Connection, name: str) -> KeyRecord:
    """The record with this id, or the newest with this name; one in use before those that were withdrawn.

    Raises:
        KeyRecordError: there is none.
    """
    order = (_keys.c.id != name, _keys.c.withdrawn.is_not(None), _keys.c.created.desc())
    row = connection.execute(
        select(_keys).where(or_(_keys.c.id == name, _keys.c.name == name)).order_by(*order).limit(1)
    ).first()
    if row is None:
        raise KeyRecordError(f"expected the name or the id of a key, got {name!r}")
    return _record(row)


def changes(connection: Connection, since: int = 0) -> tuple[int, list[KeyRecord]]:
    """The number of the last change, and the records that were made or changed after another one, the oldest first."""
    version = connection.scalar(select(_versions.c.version)) or 0
    if version == since:
        return version, []
    rows = connection.execute(select(_keys).where(_keys.c.version > since).order_by(_keys.c.created, _keys.c.id))
    return version, [_record(row) for row in rows]


def _new_key() -> str:
    return PREFIX + token_urlsafe(KEY_BYTES)


def _check_name(connection: Connection, name: str) -> None:
    if not is_name(name):
        expected = f"a name of 1 to {MAX_NAME_CHARS} characters, other than {UNNAMED}"
        raise KeyRecordError(f"expected {expected}, got {name!r}")
    same = select(func.count()).select_from(_keys).where(_keys.c.name == name, _keys.c.withdrawn.is_(None))
    if connection.scalar(same):
        raise KeyRecordError(f"expected a name that no key in use has, got {name!r}; withdraw or rotate that one")


def _change(connection: Connection, record: KeyRecord, version: int, **values: Any) -> None:
    connection.execute(update(_keys).where(_keys.c.id == record.id).values(**values, version=version))


def _next_version(connection: Connection) -> int:
    """Count one change, and make the next one wait for the end of this transaction."""
    connection.execute(insert_into(connection, _versions).values(id=1, version=0).on_conflict_do_nothing())
    counted = update(_versions).values(version=_versions.c.version + 1).returning(_versions.c.version)
    version: int = connection.execute(counted).scalar_one()
    return version


def _record(row: Row[Any]) -> KeyRecord:
    values = row._mapping
    same = "id hash old_hash old_until signing_key created expires withdrawn version".split()
    return KeyRecord(
        **{name: values[name] for name in same},
        api_key=ApiKey(
            name=values["name"],
            id=values["id"],
            scopes=_known_scopes(values["scopes"]),
            **{name: values[name] for name in ("sessions", "minutes_per_day", "minutes_per_month", "jobs")},
        ),
    )


def _known_scopes(stored: str) -> frozenset[Scope]:
    """The scopes of a record, without those that only a newer release knows, which uses the same database."""
    names = stored.split(",")
    return frozenset(scope for scope in SCOPES if scope in names)
