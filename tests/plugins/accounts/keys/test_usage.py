"""What keys have used is counted once, whatever is repeated, lost or away."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar

import pytest
from sqlalchemy import URL, select

from tests.plugins.accounts.conftest import Unsteady
from tutti_server.app.service.account_service import Kind
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.plugins.accounts.database.database import Database, DatabaseAway
from tutti_server.plugins.accounts.keys import usage, usage_counter
from tutti_server.plugins.accounts.keys.usage import Report, Used
from tutti_server.plugins.accounts.keys.usage_counter import UsageCounter

Result = TypeVar("Result")
TODAY = date(2026, 3, 31)
NOON = datetime(2026, 3, 31, 12, tzinfo=UTC)
ACME = ApiKey(name="acme", id="key_1")


def report(source: str, audio_s: float, account: str = "key_1", day: date = TODAY, kind: Kind = "live") -> Report:
    return Report(source=source, account=account, kind=kind, audio_s=audio_s, day=day)


async def totals(database: Database) -> dict[tuple[str, str], tuple[float, int]]:
    """Audio and number, by account and kind, on all days."""
    entries = await database.run(usage.used, date.min, date.max)
    sums: dict[tuple[str, str], tuple[float, int]] = {}
    for each in entries:
        audio_s, n = sums.get((each.account, each.kind), (0.0, 0))
        sums[each.account, each.kind] = (audio_s + each.audio_s, n + each.n)
    return sums


async def test_usage_is_asked_for_within_the_time_of_one_transaction(
    file_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it is saved before, and another save may be under way: else the client is gone before the answer."""
    counter = UsageCounter(file_database, lambda *args, **values: None, lambda: NOON)
    with counter.counting(ACME, "file", lambda: 3.0):
        pass
    async with counter._saving:
        monkeypatch.setattr(usage_counter, "ANSWER_TIMEOUT_S", 0.05)
        with pytest.raises(DatabaseAway, match=r"within 0\.05 s"):
            await counter.used(TODAY, TODAY)
    monkeypatch.undo()
    (entry,) = await counter.used(TODAY, TODAY)
    assert entry.audio_s == 3.0, "nothing is lost"


async def test_a_report_that_is_repeated_adds_nothing(database: Database) -> None:
    reports = [report("a", 3.0), report("b", 4.0, kind="file"), report("c", 5.0, account="key_2")]
    for _ in range(2):
        await database.run(usage.save, reports)
    await database.run(usage.save, [report("a", 10.0), report("b", 1.0)])
    assert await totals(database) == {
        ("key_1", "live"): (10.0, 1),
        ("key_1", "file"): (4.0, 1),
        ("key_2", "live"): (5.0, 1),
    }


async def test_a_session_over_midnight_counts_once_and_its_audio_on_both_days(database: Database) -> None:
    tomorrow = TODAY + timedelta(days=1)
    await database.run(usage.save, [report("a", 3.0)])
    await database.run(usage.save, [report("a", 10.0, day=tomorrow)])
    entries = await database.run(usage.used, TODAY, tomorrow, "key_1")
    assert entries == [
        Used(account="key_1", day=TODAY, kind="live", audio_s=3.0, n=1),
        Used(account="key_1", day=tomorrow, kind="live", audio_s=7.0, n=0),
    ]
    since = await database.run(usage.audio_since, "key_1", [TODAY, tomorrow])
    assert since == [10.0, 7.0]


@pytest.mark.default
async def test_gateways_that_save_at_the_same_time_lose_and_double_nothing(database: Database, url: URL) -> None:
    """Not even when both report the same source, as after a cancelled save."""
    other = Database(url)
    for step in range(1, 4):
        mine, yours = ([report(f"{who}{n}", float(step)) for n in range(50)] for who in "ab")
        both = [report("both", float(step))]
        await asyncio.gather(database.run(usage.save, mine + both), other.run(usage.save, both + yours))
    await other.close()
    assert await totals(database) == {("key_1", "live"): (303.0, 101)}


async def test_open_sources_are_remembered(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many they are. They are old again as long after that day as others after their last report.

    Their audio is never forgotten.
    """
    monkeypatch.setattr(usage, "MAX_IN_STATEMENT", 2)
    names = ["a", "b", "c", "d", "e"]
    later = TODAY + 2 * usage.KEEP_SOURCES
    await database.run(usage.save, [report(each, 3.0) for each in names])
    await database.run(usage.forget_sources, later, names[1:])
    ids = select(usage._sources.c.id).order_by(usage._sources.c.id)
    assert await database.run(lambda connection: list(connection.scalars(ids))) == names[1:]
    await database.run(usage.forget_sources, later + usage.KEEP_SOURCES)
    assert await database.run(lambda connection: list(connection.scalars(ids))) == names[1:]
    after = later + usage.KEEP_SOURCES + timedelta(days=1)
    await database.run(usage.forget_sources, after)
    assert await database.run(lambda connection: list(connection.scalars(ids))) == []
    assert await totals(database) == {("key_1", "live"): (15.0, 5)}


class Notes:
    """What the metrics were told."""

    def __init__(self) -> None:
        self.audio_s = 0.0
        self.n = 0

    def __call__(self, key: ApiKey | None, kind: Kind, audio_s: float, is_new: bool) -> None:
        self.audio_s += audio_s
        self.n += is_new


async def test_audio_is_counted_while_a_session_is_open_and_at_its_end(unsteady: Unsteady) -> None:
    """It never becomes less. A session without audio is none. Clients without a named key are counted together."""
    notes, audio_s = Notes(), 0.0
    counter = UsageCounter(unsteady, notes, lambda: NOON)
    async with counter.running():
        with counter.counting(ACME, "live", lambda: audio_s), counter.counting(ACME, "live", lambda: 0.0):
            for read_s, counted_s in ((1.0, 1.0), (2.5, 2.5), (2.0, 2.5)):
                audio_s = read_s
                await counter.save()
                assert await totals(unsteady) == {("key_1", "live"): (counted_s, 1)}
                assert notes.audio_s == counted_s
            audio_s = 4.0
        with counter.counting(None, "file", lambda: 7.0):
            pass
    assert await totals(unsteady) == {("key_1", "live"): (4.0, 1), ("unnamed", "file"): (7.0, 1)}
    assert (notes.audio_s, notes.n) == (11.0, 2)


async def test_what_is_used_without_the_database_is_counted_later(unsteady: Unsteady) -> None:
    """Once, also if the database had it and its answer was lost."""
    counter = UsageCounter(unsteady, Notes(), lambda: NOON)
    audio_s = 3.0
    with counter.counting(ACME, "live", lambda: audio_s):
        unsteady.is_away = True
        await counter.save()
        assert await counter.audio_since(ACME, [TODAY]) == []
        unsteady.is_away, unsteady.loses_answers = False, True
        audio_s = 4.0
        await counter.save()
        audio_s = 5.0
        await counter.save()
    unsteady.loses_answers = False
    await counter.save()
    await counter.save()
    assert await totals(unsteady) == {("key_1", "live"): (5.0, 1)}
    assert await counter.audio_since(ACME, [TODAY]) == [5.0]


async def test_what_is_used_without_the_database_is_counted_on_its_day(unsteady: Unsteady) -> None:
    """Else a month that ends meanwhile would be billed too low, and the next one too high."""
    tomorrow, audio_s, now = TODAY + timedelta(days=1), 3.0, NOON
    counter = UsageCounter(unsteady, Notes(), lambda: now)
    with counter.counting(ACME, "live", lambda: audio_s):
        unsteady.is_away = True
        await counter.save()
        audio_s, now = 10.0, NOON + timedelta(days=1)
        await counter.save()
    unsteady.is_away = False
    entries = await counter.used(TODAY, tomorrow)
    assert [(each.day, each.audio_s, each.n) for each in entries] == [(TODAY, 3.0, 1), (tomorrow, 7.0, 0)]


async def test_a_session_without_audio_for_days_is_counted_once(database: Database) -> None:
    """Another gateway that forgets old sources meanwhile does not forget those of this one."""
    audio_s, now = 3600.0, NOON
    counters = [UsageCounter(database, Notes(), lambda: now) for _ in range(2)]
    with counters[0].counting(ACME, "live", lambda: audio_s):
        for days in range(5):
            now = NOON + timedelta(days=days)
            for counter in counters:
                await counter.save()
        audio_s += 10
        await counters[0].save()
    assert await totals(database) == {("key_1", "live"): (3610.0, 1)}


async def test_it_saves_after_an_unexpected_failure(
    unsteady: Unsteady, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What could not be saved then is not lost."""
    monkeypatch.setattr("tutti_server.plugins.accounts.keys.usage_counter.SAVE_EVERY_S", 0.0)
    counter = UsageCounter(unsteady, Notes(), lambda: NOON)
    async with asyncio.timeout(30), counter.running():
        with counter.counting(ACME, "job", lambda: 3.0):
            unsteady.is_wrong = True
            while "an unexpected error" not in caplog.text:
                await asyncio.to_thread(lambda: None)
            unsteady.is_wrong = False
            while await totals(unsteady) != {("key_1", "job"): (3.0, 1)}:
                pass


async def test_the_number_of_unsaved_sources_is_bounded(
    unsteady: Unsteady, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what is lost."""
    monkeypatch.setattr("tutti_server.plugins.accounts.keys.usage_counter.MAX_UNSAVED", 2)
    counter = UsageCounter(unsteady, Notes(), lambda: NOON)
    for _ in range(3):
        with counter.counting(ACME, "file", lambda: 1.0):
            pass
    await counter.save()
    assert await totals(unsteady) == {("key_1", "file"): (2.0, 2)}
    assert "1.0 s of audio are not counted" in caplog.text
