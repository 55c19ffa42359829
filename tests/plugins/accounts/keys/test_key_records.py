"""Keys as records: made, found, rotated and withdrawn, on SQLite and on PostgreSQL."""

import asyncio
import time

import pytest
from sqlalchemy import URL, text

from tutti_server.app.service.api_keys import ApiKey
from tutti_server.plugins.accounts.database.database import Database
from tutti_server.plugins.accounts.keys import key_records
from tutti_server.plugins.accounts.keys.key_records import PREFIX, KeyRecordError, hash_of

ACME = ApiKey(
    name="acme",
    scopes=frozenset({"live", "files"}),
    sessions=10,
    minutes_per_day=1.5,
    minutes_per_month=60.0,
    jobs=3,
)


async def test_a_record_has_what_was_wanted_and_never_the_key(database: Database) -> None:
    key, record = await database.run(key_records.create, ACME, expires=9e9)
    assert key.startswith(PREFIX) and len(key) == len(PREFIX) + 43
    assert (record.hash, record.expires, record.withdrawn) == (hash_of(key), 9e9, None)
    assert record.id.startswith("key_") and record.api_key.account == record.id
    for name in ("name", "scopes", "sessions", "minutes_per_day", "minutes_per_month", "jobs"):
        assert getattr(record.api_key, name) == getattr(ACME, name)
    (row,) = await database.run(lambda connection: connection.execute(text("SELECT * FROM tutti_keys")).all())
    assert key not in map(str, row)
    assert record.hash not in repr(record) and record.signing_key not in repr(record)


@pytest.mark.parametrize(("stored", "known"), [("live,summaries", {"live"}), ("summaries", set())])
async def test_scopes_of_a_newer_release_permit_nothing(file_database: Database, stored: str, known: set[str]) -> None:
    """It may have made keys while both releases run. Such a key can be withdrawn, as others."""
    await file_database.run(key_records.create, ACME)
    change = text("UPDATE tutti_keys SET scopes = :stored")
    await file_database.run(lambda connection: connection.execute(change, {"stored": stored}).rowcount)
    (record,) = (await file_database.run(key_records.changes))[1]
    assert record.api_key.scopes == known
    assert (await file_database.run(key_records.withdraw, "acme")).withdrawn


async def test_a_name_in_use_is_refused_and_a_withdrawn_one_may_be_used_again(database: Database) -> None:
    _, first = await database.run(key_records.create, ACME)
    with pytest.raises(KeyRecordError, match="expected a name that no key in use has, got 'acme'"):
        await database.run(key_records.create, ACME)
    withdrawn = await database.run(key_records.withdraw, "acme")
    assert withdrawn.withdrawn is not None and not withdrawn.is_valid(time.time())
    again = await database.run(key_records.withdraw, first.id)
    assert again.withdrawn == withdrawn.withdrawn
    _, second = await database.run(key_records.create, ACME)
    assert second.id != first.id
    assert (await database.run(key_records.find, "acme")).id == second.id


async def test_the_id_of_a_key_is_never_taken_for_the_name_of_another(file_database: Database) -> None:
    """Else an operator who withdraws a lost key by its id withdraws a newer one that is called so."""
    _, first = await file_database.run(key_records.create, ACME)
    key, second = await file_database.run(key_records.create, ApiKey(name=first.id))
    assert (second.name, second.hash) == (first.id, hash_of(key))
    assert (await file_database.run(key_records.withdraw, first.id)).id == first.id


async def test_a_wrong_or_unknown_name_is_refused(file_database: Database) -> None:
    for name in ("", "  ", "a\n", "n" * 65, "unnamed"):
        with pytest.raises(KeyRecordError, match="expected a name of 1 to 64 characters"):
            await file_database.run(key_records.create, ApiKey(name=name))
    for work in (key_records.find, key_records.withdraw, key_records.rotate):
        with pytest.raises(KeyRecordError, match="expected the name or the id of a key, got 'nobody'"):
            await file_database.run(work, "nobody")


async def test_a_rotation_keeps_the_old_key_for_a_while_only_if_asked_to(database: Database) -> None:
    old, record = await database.run(key_records.create, ACME)
    new, rotated = await database.run(key_records.rotate, "acme", 60.0)
    now = time.time()
    assert rotated.id == record.id and rotated.signing_key != record.signing_key
    assert rotated.accepts(hash_of(new), now) and rotated.accepts(hash_of(old), now)
    assert rotated.accepts(hash_of(new), now + 61) and not rotated.accepts(hash_of(old), now + 61)
    _, rotated = await database.run(key_records.rotate, "acme")
    assert rotated.old_hash is None
    await database.run(key_records.withdraw, "acme")
    with pytest.raises(KeyRecordError, match="expected a key that is in use, got acme, which was withdrawn"):
        await database.run(key_records.rotate, "acme")


async def test_changes_are_seen_once_each(database: Database) -> None:
    assert await database.run(key_records.changes) == (0, [])
    await database.run(key_records.create, ACME)
    await database.run(key_records.create, ApiKey(name="other"))
    version, records = await database.run(key_records.changes)
    assert [each.name for each in records] == ["acme", "other"]
    assert await database.run(key_records.changes, version) == (version, [])
    await database.run(key_records.withdraw, "acme")
    _, (record,) = await database.run(key_records.changes, version)
    assert record.name == "acme" and record.withdrawn is not None


async def test_changes_at_the_same_time_get_numbers_of_their_own(database: Database, url: URL) -> None:
    """Also the very first ones, from two processes."""
    other = Database(url)
    keys = [(each, f"{at}{n}") for n in range(5) for at, each in (("one", database), ("other", other))]
    await asyncio.gather(*(each.run(key_records.create, ApiKey(name=name)) for each, name in keys))
    await other.close()
    version, records = await database.run(key_records.changes)
    assert version == 10 and sorted(each.version for each in records) == list(range(1, 11))
