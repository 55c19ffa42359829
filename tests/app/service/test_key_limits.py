"""Limits of keys: sessions at one time and minutes of audio, over all gateways."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest

from tests.redis_server import RedisServer
from tutti_server.app.errors import KeyLimitExceeded
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.app.service.key_limits import KeyLimits
from tutti_server.app.sharing.local_store import LocalStore
from tutti_server.app.sharing.redis_store import RedisStore
from tutti_server.app.sharing.store import SharedStore

NOON = datetime(2026, 2, 28, 12, tzinfo=UTC)
TEAM = ApiKey(name="team", key="k", sessions=2)
METERED = ApiKey(name="metered", key="m", minutes_per_day=1.0, minutes_per_month=1.5)


class Gateways:
    """The limits of several gateways with one store, and the time at all of them."""

    def __init__(self, n: int, store: SharedStore) -> None:
        self.now = NOON
        self.n_refused = 0
        self.limits = [KeyLimits(store, self._note_refused, now=lambda: self.now) for _ in range(n)]

    def _note_refused(self) -> None:
        self.n_refused += 1

    async def use(self, key: ApiKey, seconds: float) -> None:
        """Have a session with this much audio at the first gateway, and wait until it is counted."""
        async with self.limits[0].running(), self.limits[0].session(key, lambda: seconds):
            pass


async def test_sessions_count_at_all_gateways() -> None:
    """When one has ended, there is room for another one, at any gateway."""
    gateways = Gateways(2, LocalStore())
    one, other = gateways.limits
    async with one.running(), other.running(), one.session(TEAM, lambda: 0.0):
        async with other.session(TEAM, lambda: 0.0):
            for limits in (one, other):
                with pytest.raises(KeyLimitExceeded, match="team has 2 of 2 sessions open") as refused:
                    await limits.session(TEAM, lambda: 0.0).__aenter__()
                assert (refused.value.code, refused.value.retry_after_s) == ("session_limit", 5)
        while not await _is_admitted(one, TEAM):
            pass
    assert gateways.n_refused >= 2


async def _is_admitted(limits: KeyLimits, key: ApiKey) -> bool:
    await asyncio.sleep(0)
    try:
        async with limits.session(key, lambda: 0.0):
            return True
    except KeyLimitExceeded:
        return False


async def test_keys_do_not_count_for_one_another() -> None:
    """One without limits may do anything."""
    (limits,) = Gateways(1, LocalStore()).limits
    one = ApiKey(name="one", key="1", sessions=1)
    free = ApiKey(name="free", key="f")
    async with limits.running(), AsyncExitStack() as stack:
        for key in (one, TEAM, TEAM, free, free, None):
            await stack.enter_async_context(limits.session(key, lambda: 0.0))


async def test_minutes_end_with_the_day_and_with_the_month() -> None:
    """Who has none left is refused until they begin anew."""
    gateways = Gateways(2, LocalStore())
    _, other = gateways.limits
    await gateways.use(METERED, 59.0)
    assert await _is_admitted(other, METERED)
    await gateways.use(METERED, 2.0)
    with pytest.raises(KeyLimitExceeded, match="its 1 minutes of audio for this day") as refused:
        await other.session(METERED, lambda: 0.0).__aenter__()
    assert refused.value.code == "quota_exceeded"
    assert refused.value.retry_after_s == 12 * 3600 + 1
    gateways.now = NOON.replace(day=20)
    await gateways.use(METERED, 30.0)
    with pytest.raises(KeyLimitExceeded, match=r"its 1\.5 minutes of audio for this month") as refused:
        await other.upload(METERED).__aenter__()
    assert gateways.now + timedelta(seconds=refused.value.retry_after_s - 1) == datetime(2026, 3, 1, tzinfo=UTC)
    gateways.now = datetime(2026, 3, 1, tzinfo=UTC)
    assert await _is_admitted(other, METERED)


async def test_audio_of_open_sessions_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a session that uses up the minutes goes on."""
    monkeypatch.setattr("tutti_server.app.service.key_limits.COUNT_EVERY_S", 0.0)
    (limits,) = Gateways(1, LocalStore()).limits
    audio_s = 0.0
    async with limits.running(), limits.session(METERED, lambda: audio_s):
        audio_s = 61.0
        while await _is_admitted(limits, METERED):
            pass


async def test_a_stop_while_audio_is_being_counted_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutti_server.app.service.key_limits.COUNT_EVERY_S", 0.0)
    begun = asyncio.Event()

    class SlowStore(LocalStore):
        async def add(self, amounts: Mapping[str, float], keep_s: float) -> None:
            if not begun.is_set():
                begun.set()
                await asyncio.Event().wait()
            await super().add(amounts, keep_s)

    gateways = Gateways(2, SlowStore())
    one, other = gateways.limits
    async with one.running():
        async with one.session(METERED, lambda: 61.0):
            pass
        await begun.wait()
    assert not await _is_admitted(other, METERED)


async def test_audio_of_uploads_counts_and_their_number_does_not() -> None:
    gateways = Gateways(2, LocalStore())
    one, other = gateways.limits
    async with one.running():
        for key, seconds in ((METERED, 20.0), (METERED, 40.0), (ApiKey(name="a", key="a", sessions=0), 1.0), (None, 1)):
            async with one.upload(key) as on_progress:
                on_progress(seconds / 2)
                on_progress(seconds)
    assert not await _is_admitted(other, METERED)


@pytest.mark.default
async def test_without_redis_everybody_is_admitted_and_counted_later(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tutti_server.app.service.key_limits.COUNT_EVERY_S", 0.0)
    monkeypatch.setattr("tutti_server.app.sharing.leases.RENEW_S", 0.01)
    store = RedisStore(redis.url)
    (limits,) = Gateways(1, store).limits
    async with store.running(), limits.running(), limits.session(TEAM, lambda: 0.0):
        redis.kill()
        async with (
            limits.session(TEAM, lambda: 0.0),
            limits.session(TEAM, lambda: 0.0),
            limits.session(METERED, lambda: 61.0),
        ):
            pass
        async with limits.session(TEAM, lambda: 0.0), limits.session(METERED, lambda: 0.0):
            redis.start()
            await store.wait_until_up()
            while await _is_admitted(limits, TEAM):
                pass
        while await _is_admitted(limits, METERED):
            pass
        while not await _is_admitted(limits, TEAM):
            pass
