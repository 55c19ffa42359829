"""The models of a service: names, loading at first use, giving back, memory, and counters."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from tests.fakes import MODEL, FakeTranscriber
from tutti_server.app.errors import BadStart, LimitExceeded, RequestError, SessionError, SettingsError
from tutti_server.app.service.models import FurtherModel, Models
from tutti_server.engine import api

GB = 1 << 30


@dataclass(kw_only=True)
class Shelf:
    """A further model whose engine is a fake one."""

    name: str = "large"
    aliases: tuple[str, ...] = ("big",)
    needed_bytes: int = 0
    error: Exception | None = None
    """Raised by loading."""
    speed_s: float = 0.001
    """How long a window takes, by its counters."""
    n_loads: int = 0
    is_loaded: bool = False
    may_load: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when loading has begun."""
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when an engine begins to end."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when an engine has ended."""
    transcriber: FakeTranscriber = field(default_factory=FakeTranscriber)

    def __post_init__(self) -> None:
        self.may_load.set()
        self.may_end.set()

    @property
    def model(self) -> FurtherModel:
        info = replace(MODEL, name=self.name, aliases=self.aliases)
        card = api.ModelCard(
            name=self.name,
            aliases=self.aliases,
            is_multilingual=True,
            languages=info.languages,
            tasks=info.tasks,
        )

        @asynccontextmanager
        async def load() -> AsyncIterator[api.Transcriber]:
            self.n_loads += 1
            self.begun.set()
            await self.may_load.wait()
            if self.error:
                raise self.error
            self.is_loaded = True
            self.transcriber = Slow(info=info, speed_s=self.speed_s)
            try:
                yield self.transcriber
            finally:
                self.ending.set()
                await self.may_end.wait()
                self.is_loaded = False
                self.transcriber.is_alive = False
                self.ended.set()

        return FurtherModel(card=card, load=load, needed_bytes=self.needed_bytes)


@dataclass(kw_only=True)
class Slow(FakeTranscriber):
    speed_s: float = 0.001

    def stats(self) -> api.EngineStats:
        return replace(super().stats(), utterance_encode_s=self.speed_s, window_decode_s=0.0, n_engines=1)


@dataclass(frozen=True)
class FakeMemory:
    shelves: Sequence[Shelf]
    left: int

    def bytes_left(self) -> int:
        return self.left - self.bytes_taken()

    def bytes_taken(self) -> int:
        return sum(each.needed_bytes for each in self.shelves if each.is_loaded)


def models(*shelves: Shelf, idle_s: float = 0.0, left: int = 0) -> Models:
    """Models of which the first is "fake"; each that is loaded takes what it needs of `left`."""
    first = Slow(info=replace(MODEL, aliases=("mine",)))
    return Models(first, [each.model for each in shelves], idle_s=idle_s, memory=FakeMemory(shelves, left))


@pytest.mark.parametrize(
    ("name", "expected"),
    [(None, "fake"), ("", "fake"), ("fake", "fake"), ("mine", "fake"), ("large", "large"), ("big", "large")]
    + [(name, "fake") for name in ("whisper-1", "gpt-4o-transcribe", "nova-3", "nova-2-medical", "enhanced")]
    + [(name, "fake") for name in ("general", "phonecall", "meeting", "base-phonecall")],
)
def test_a_client_chooses_by_a_name_and_habit_means_the_first(name: str | None, expected: str) -> None:
    assert models(Shelf()).meant(name).name == expected


def test_another_name_is_an_error_that_lists_the_models() -> None:
    several = models(Shelf())
    with pytest.raises(BadStart, match="model: expected fake or mine or large or big, got 'small'"):
        several.meant("small")
    with pytest.raises(BadStart):
        several.named("whisper-1")
    with pytest.raises(RequestError, match="got 'small'") as caught:
        several.requested("small")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


def test_a_server_of_one_model_answers_to_any_name() -> None:
    assert models().meant("large").name == "fake"


def test_two_models_need_different_names() -> None:
    with pytest.raises(SettingsError, match="two that are mine"):
        models(Shelf(aliases=("mine",)))


async def test_a_model_is_loaded_once_for_all_who_wait_for_it() -> None:
    shelf = Shelf()
    shelf.may_load.clear()
    several = models(shelf)
    async with several.running():
        waiting = [asyncio.create_task(several.take("large")) for _ in range(3)]
        await shelf.begun.wait()
        # Clients of the first model do not wait.
        async with several.use("fake") as transcriber:
            assert transcriber.info.name == "fake"
        shelf.may_load.set()
        leases = await asyncio.gather(*waiting)
        assert {id(each.transcriber) for each in leases} == {id(shelf.transcriber)} and shelf.n_loads == 1
    assert not shelf.is_loaded


async def test_an_engine_in_use_is_kept() -> None:
    """The one that is not in use, and has the same time, is given back meanwhile."""
    used, unused = Shelf(), Shelf(name="small", aliases=())
    several = models(used, unused, idle_s=0.01)
    async with several.running():
        lease = await several.take("large")
        # A second use ends: the first one still counts.
        (await several.take("large")).release()
        (await several.take("small")).release()
        await unused.ended.wait()
        assert used.is_loaded
        lease.release()
        lease.release()
        await used.ended.wait()


async def test_who_waits_too_long_gets_an_error_and_the_loading_goes_on() -> None:
    shelf = Shelf()
    shelf.may_load.clear()
    several = models(shelf)
    async with several.running():
        with pytest.raises(LimitExceeded, match="large is still being loaded; try again") as caught:
            await several.take("large", wait_s=0.0)
        assert caught.value.code == "overloaded"
        shelf.may_load.set()
        (await several.take("large")).release()
        assert shelf.n_loads == 1


async def test_a_model_that_cannot_be_loaded_ends_its_requests_only(caplog: pytest.LogCaptureFixture) -> None:
    """The client does not learn where the operator's files are. The next one tries again."""
    shelf = Shelf(error=RuntimeError("/secret/place is broken"))
    several = models(shelf)
    async with several.running():
        for _ in range(2):
            with pytest.raises(SessionError, match="large cannot be loaded; the log of the server says why"):
                await several.take("large")
        assert "/secret/place is broken" in caplog.text and shelf.n_loads == 2
        async with several.use("fake") as transcriber:
            assert transcriber.is_alive


async def test_an_engine_that_died_is_loaded_again() -> None:
    shelf = Shelf()
    several = models(shelf)
    async with several.running():
        lease = await several.take("large")
        shelf.transcriber.is_alive = False
        again = await several.take("large")
        assert again.transcriber.is_alive and again.transcriber is not lease.transcriber
        lease.release()
        again.release()


async def test_unused_engines_make_room_for_another_one() -> None:
    """The one that was used longest ago goes first."""
    old, new, third = (Shelf(name=name, aliases=(), needed_bytes=4 * GB) for name in ("old", "new", "third"))
    several = models(old, new, third, left=9 * GB)
    async with several.running():
        for name in ("old", "new"):
            (await several.take(name)).release()
        lease = await several.take("third")
        assert (old.is_loaded, new.is_loaded, third.is_loaded) == (False, True, True)
        lease.release()


async def test_an_engine_that_was_taken_meanwhile_does_not_make_room() -> None:
    """Whoever takes it while another engine is given back keeps it, and the new model is refused."""
    one, two, third = (Shelf(name=name, aliases=(), needed_bytes=GB) for name in ("one", "two", "third"))
    two.needed_bytes, third.needed_bytes = 2 * GB, 3 * GB
    several = models(one, two, third, left=3 * GB)
    async with several.running():
        for name in ("one", "two"):
            async with several.use(name):
                pass
        one.may_end.clear()
        loading = asyncio.create_task(several.take("third"))
        await one.ending.wait()
        lease = await several.take("two")
        one.may_end.set()
        with pytest.raises(LimitExceeded, match="no room: third"):
            await loading
        assert lease.transcriber.is_alive and two.n_loads == 1
        lease.release()


async def test_a_model_that_nobody_waits_for_any_more_holds_up_no_other() -> None:
    """It is next in turn when its clients have left, and does not make room by ending itself."""
    one, two, third = (Shelf(name=name, aliases=(), needed_bytes=GB) for name in ("one", "two", "third"))
    several = models(one, two, third, left=2 * GB)
    async with several.running():
        lease = await several.take("one")
        two.may_load.clear()
        second = asyncio.create_task(several.take("two"))
        await two.begun.wait()
        with pytest.raises(LimitExceeded, match="still being loaded"):
            await several.take("third", wait_s=0.001)
        two.may_load.set()
        (await second).release()
        lease.release()
        async with several.use("third"):
            assert third.is_loaded


async def test_without_memory_a_request_is_refused() -> None:
    used, wanted = (Shelf(name=name, aliases=(), needed_bytes=4 * GB) for name in ("used", "wanted"))
    several = models(used, wanted, left=6 * GB)
    async with several.running():
        lease = await several.take("used")
        text = "no room: wanted needs 4295 MB of memory, and 2147 MB of memory are left; try again in 5 s"
        with pytest.raises(LimitExceeded, match=text) as caught:
            await several.take("wanted")
        assert caught.value.code == "overloaded" and wanted.n_loads == 0 and used.is_loaded
        lease.release()
        (await several.take("wanted")).release()


async def test_a_server_that_stops_waits_for_what_is_being_loaded() -> None:
    """The loading cannot be interrupted."""
    shelf = Shelf()
    shelf.may_load.clear()
    several = models(shelf)
    async with several.running():
        waiting = asyncio.create_task(several.take("large"))
        await shelf.begun.wait()
        asyncio.get_running_loop().call_soon(shelf.may_load.set)
    assert not shelf.is_loaded and shelf.ended.is_set()
    (await waiting).release()


async def test_counters_are_those_of_one_machine() -> None:
    """A usual window takes as long as those of the models that are in use, by how many use them."""
    shelf = Shelf(speed_s=0.101)
    several = models(shelf)
    assert several.stats().utterance_encode_s == pytest.approx(0.001)
    async with several.running():
        first, second = await several.take("fake"), await several.take("large")
        stats = several.stats()
        assert stats.n_engines == 1 and set(stats.engines) == {"fake", "large"}
        assert stats.utterance_encode_s == pytest.approx(0.051)
        first.release()
        assert several.stats().utterance_encode_s == pytest.approx(0.101)
        second.release()
        assert several.stats().utterance_encode_s == pytest.approx(0.001)
    # An engine that was given back is not down, of which an alert would tell.
    assert set(several.stats().engines) == {"fake"}
