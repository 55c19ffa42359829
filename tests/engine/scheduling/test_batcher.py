"""The batcher decides: order, fairness, waiting, limits."""

from collections import Counter, deque
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.engine.api import Priority
from tutti_server.engine.errors import EngineOverloaded
from tutti_server.engine.scheduling.batcher import (
    ENCODER_POLL_S,
    LIVE_MEMORY_S,
    RECENT_S,
    RUNNING_TO_FILL,
    Batcher,
    BatchLimits,
    Encode,
    Idle,
    Load,
    Wait,
    Waiting,
)

LIMITS = BatchLimits(max_waiting=100, max_batch=4, max_wait_s=0.01, max_decode_stall_s=0.4)
SHORTENING = {"shortens_decoding": True}
LATER_S = 1.0
"""A time at which no window is held back any more."""


def load_of(n_free_slots: int, n_running: int, window_encode_s: float, **more: object) -> Load:
    return Load(
        n_free_slots=n_free_slots,
        n_running=n_running,
        window_encode_s=window_encode_s,
        **more,  # type: ignore[arg-type]
    )


IDLE = load_of(8, 0, 0.15)


def encoded(batcher: Batcher, now_s: float, load: Load) -> list[int]:
    """The windows that the batcher decides to encode now."""
    decision = batcher.decide(now_s, load)
    return list(decision.ids) if isinstance(decision, Encode) else []


def final(id: int, session: str = "a") -> Waiting:
    return Waiting(id=id, session=session, priority=Priority.FINAL)


def interim(id: int, session: str = "a", channel: int = 0) -> Waiting:
    return Waiting(id=id, session=session, channel=channel, priority=Priority.INTERIM)


def file(id: int, session: str = "f") -> Waiting:
    return Waiting(id=id, session=session, priority=Priority.FILE)


def speculative(id: int, session: str = "a", channel: int = 0) -> Waiting:
    return Waiting(id=id, session=session, channel=channel, priority=Priority.SPECULATIVE)


def batcher_with(*windows: Waiting, limits: BatchLimits = LIMITS) -> Batcher:
    batcher = Batcher(limits)
    for window in windows:
        batcher.add(window, 0.0)
    return batcher


def test_lone_window_is_held_back_for_others() -> None:
    """Until `max_wait_s` has passed since it came."""
    batcher = batcher_with(final(1))
    assert encoded(batcher, 0.009, IDLE) == []
    assert batcher.decide(0.004, IDLE) == Wait(pytest.approx(0.006))  # type: ignore[arg-type]
    assert encoded(batcher, 0.01, IDLE) == [1]


def test_no_window_waits_where_no_other_is_expected() -> None:
    """Where every recent session has a window in the queue or running, no window is held back."""
    batcher = batcher_with(final(0), final(1, "b"))
    assert encoded(batcher, LATER_S, IDLE) == [0, 1]
    later_s = 2 * RECENT_S
    batcher.add(final(2), later_s)
    batcher.add(final(3, "b"), later_s)
    assert encoded(batcher, later_s, IDLE) == [2, 3]
    batcher.add(final(4), later_s)
    assert encoded(batcher, later_s, IDLE) == []
    assert encoded(batcher, later_s, load_of(8, 1, 0.15, sessions=frozenset("b"))) == [4]
    batcher.add(final(5), later_s + RECENT_S + 0.1)
    assert encoded(batcher, later_s + RECENT_S + 0.1, IDLE) == [5]


def test_another_call_joins_while_there_is_time() -> None:
    """Of the 0.4 s that sequences may be held up, 0.2 have gone: one window more at 0.15 s, and not two."""
    batcher = batcher_with(*(final(id) for id in range(5)))
    assert encoded(batcher, LATER_S, load_of(8, 4, 0.15, debt_fraction=0.5, begun_encode_s=0.2)) == [0]
    assert encoded(batcher, LATER_S, load_of(7, 5, 0.15, debt_fraction=0.5, begun_encode_s=0.35)) == []


@pytest.mark.parametrize("limits", [replace(LIMITS, max_batch=1), replace(LIMITS, n_slots=1)])
def test_sessions_are_forgotten(limits: BatchLimits) -> None:
    batcher = Batcher(limits)
    for number in range(20):
        batcher.add(final(number, f"session {number}"), 10.0 * number)
        assert encoded(batcher, 10.0 * number, load_of(1, 0, 0.15)) == [number]
    assert len(batcher._recent) == 1


def test_what_fills_a_batch_or_the_device_does_not_wait() -> None:
    """Nothing more would fit; what fills the device may be less than a batch, which would not go faster."""
    assert encoded(batcher_with(*(final(id) for id in range(5))), 0.0, IDLE) == [0, 1, 2, 3]
    limits = BatchLimits(max_waiting=100, max_batch=16, max_wait_s=0.01, max_decode_stall_s=0.4, n_filling=2)
    batcher = batcher_with(final(1), limits=limits)
    assert encoded(batcher, 0.0, IDLE) == []
    batcher.add(final(2), 0.0)
    assert encoded(batcher, 0.0, IDLE) == [1, 2]


FILLING = replace(LIMITS, n_slots=64, n_filling=3, max_fill_wait_s=0.1)
FULL = load_of(2, 62, 0.05)
"""Two of 64 sequences have ended."""


def test_files_wait_until_enough_slots_are_free_to_fill_the_device() -> None:
    """Sequences of different lengths end one by one. The wait counts from the last encoder call."""
    batcher = batcher_with(*(file(id, f"f{id}") for id in range(9)), limits=FILLING)
    assert encoded(batcher, 1.0, replace(FULL, n_free_slots=1)) == [0]
    assert batcher.decide(1.05, FULL) == Idle()
    assert encoded(batcher, 1.06, replace(FULL, n_free_slots=3)) == [1, 2, 3]
    assert encoded(batcher, 1.15, FULL) == []
    assert encoded(batcher, 1.17, FULL) == [4, 5]


@pytest.mark.parametrize(
    ("load", "others"),
    [
        pytest.param(replace(FULL, n_running=RUNNING_TO_FILL - 1), [], id="few others run"),
        pytest.param(replace(FULL, begun_encode_s=0.05), [], id="they join a call"),
        pytest.param(FULL, [final(7)], id="a final waits"),
    ],
)
def test_files_do_not_wait_where_that_would_win_nothing(load: Load, others: list[Waiting]) -> None:
    batcher = batcher_with(*(file(id, f"f{id}") for id in range(3)), limits=FILLING)
    assert encoded(batcher, 1.0, replace(FULL, n_free_slots=1)) == [0]
    for each in others:
        batcher.add(each, 1.0)
    assert encoded(batcher, 1.05, load)


def test_an_encoder_call_under_way_is_waited_for() -> None:
    """Until the device has done or the time is up; then what is there joins, or the round ends.

    A round whose windows have all left ends at once.
    """
    joining = load_of(8, 1, 0.05, begun_encode_s=0.05, joins_until_s=LATER_S, is_encoding=True)
    assert batcher_with(final(1)).decide(0.0, joining) == Wait(ENCODER_POLL_S)
    assert batcher_with(final(1)).decide(LATER_S, joining) == Encode((1,))
    assert batcher_with(final(1)).decide(LATER_S, replace(joining, is_encoding=False)) == Encode((1,))
    assert Batcher(LIMITS).decide(LATER_S, joining) == Idle()
    assert Batcher(LIMITS).decide(0.0, replace(joining, is_encoding=False)) == Idle()
    assert Batcher(LIMITS).decide(0.0, replace(joining, n_running=0)) == Idle()


@pytest.mark.parametrize(("window_encode_s", "n_taken"), [(0.1, 4), (0.15, 2), (0.3, 1), (3.0, 1), (0.0, 4)])
def test_running_sequences_bound_the_batch(window_encode_s: float, n_taken: int) -> None:
    """An encoder call may hold them up for 0.4 s, but never gets less than one window."""
    batcher = batcher_with(*(final(id) for id in range(5)))
    assert len(encoded(batcher, LATER_S, load_of(8, 1, window_encode_s))) == n_taken


@pytest.mark.parametrize(("shares", "n_taken"), [((0.2, 0.2, 0.2, 0.2), 4), ((1.0, 0.2, 0.2), 3), ((0.2, 1.0, 1.0), 2)])
def test_short_windows_cost_less(shares: tuple[float, ...], n_taken: int) -> None:
    """The bound counts encoder work: 0.4 s are 1.4 full windows here."""
    windows = [
        Waiting(id=id, session="a", priority=Priority.FINAL, encode_work=share) for id, share in enumerate(shares)
    ]
    assert len(encoded(batcher_with(*windows), LATER_S, load_of(8, 1, 0.28))) == n_taken


def test_interims_hold_up_less_than_finals() -> None:
    """So that a final that comes meanwhile has not long to wait; finals come first and may take all of the time."""
    limits = BatchLimits(max_waiting=100, max_batch=16, max_wait_s=0, max_decode_stall_s=0.4, max_interim_stall_s=0.2)
    running = load_of(16, 1, 0.04)
    interims = [interim(id, f"s{id}") for id in range(4)]
    finals = [final(id, f"s{id}") for id in range(4, 16)]
    assert encoded(batcher_with(*interims, limits=limits), LATER_S, running) == [0, 1]
    assert encoded(batcher_with(*interims, *finals[:1], limits=limits), LATER_S, running) == [4, 0]
    assert encoded(batcher_with(*interims, *finals, limits=limits), LATER_S, running) == list(range(4, 14))
    idle = load_of(16, 0, 0.04)
    assert encoded(batcher_with(*interims, limits=limits), LATER_S, idle) == [0, 1]
    assert encoded(batcher_with(*finals, limits=limits), LATER_S, idle) == list(range(4, 16))
    joining = load_of(16, 1, 0.04, begun_encode_s=0.08)
    assert encoded(batcher_with(*interims, limits=limits), LATER_S, joining) == []


def test_running_sequences_with_a_decode_debt_come_before_encoder_calls() -> None:
    """While sequences run and have a debt from the last encoder call, none is begun; otherwise one is."""
    batcher = batcher_with(final(1))
    assert encoded(batcher, LATER_S, load_of(8, 1, 0.1, debt_fraction=0.1)) == []
    assert encoded(batcher, LATER_S, load_of(8, 0, 0.1, debt_fraction=0.1)) == [1]


def test_few_sequences_give_way_sooner_where_many_windows_wait() -> None:
    """One of four waiting: after a quarter of its debt. Two: after half. Interims neither count nor go."""
    batcher = batcher_with(*(final(id) for id in range(4)), interim(9, "b"), limits=replace(LIMITS, **SHORTENING))
    assert encoded(batcher, LATER_S, load_of(1, 1, 0.1, debt_fraction=0.8)) == []
    assert encoded(batcher, LATER_S, load_of(1, 2, 0.1, debt_fraction=0.6)) == []
    assert encoded(batcher, LATER_S, load_of(1, 2, 0.1, debt_fraction=0.5)) == [0]
    assert encoded(batcher, LATER_S, load_of(1, 1, 0.1, debt_fraction=0.7)) == []
    assert encoded(batcher, LATER_S, load_of(8, 1, 0.1, debt_fraction=0.66)) == [1, 2, 3]
    assert encoded(batcher, LATER_S, load_of(8, 1, 0.1, debt_fraction=0.66, begun_encode_s=0.1)) == []
    assert encoded(batcher, LATER_S, load_of(8, 1, 0.1)) == [9]


def test_waiting_files_shorten_no_decoding_of_live_sessions() -> None:
    """Where there are none, they do."""
    for live, taken in (([interim(9, "b")], []), ([], [1])):
        batcher = batcher_with(*(file(id) for id in range(1, 5)), *live, limits=replace(LIMITS, **SHORTENING))
        assert encoded(batcher, LATER_S, load_of(1, 1, 0.1, debt_fraction=0.5)) == taken


@pytest.mark.parametrize(
    ("n_slots", "n_free", "n_taken"), [(1, 1, 1), (2, 2, 1), (2, 1, 0), (4, 4, 3), (16, 6, 2), (16, 4, 0)]
)
def test_interims_leave_slots_free_for_finals(n_slots: int, n_free: int, n_taken: int) -> None:
    """A quarter of them, one at least where there are two; a final takes any."""
    limits = BatchLimits(max_waiting=100, max_batch=4, max_wait_s=0.01, max_decode_stall_s=10.0, n_slots=n_slots)
    load = load_of(n_free, n_slots - n_free, 0.1)
    interims = [interim(id, str(id)) for id in range(6)]
    assert len(encoded(batcher_with(*interims, limits=limits), LATER_S, load)) == n_taken
    finals = [final(id) for id in range(6)]
    assert len(encoded(batcher_with(*finals, limits=limits), LATER_S, load)) == min(n_free, 4)


def test_a_window_waits_for_slots_for_all_of_its_beams() -> None:
    """No window behind it overtakes, so that it gets them as soon as enough others have ended."""
    limits = BatchLimits(max_waiting=100, max_batch=4, max_wait_s=0.01, max_decode_stall_s=10.0, n_slots=8)
    wide = replace(final(2), n_slots=5)
    batcher = batcher_with(final(1), wide, final(3), limits=limits)
    assert encoded(batcher, LATER_S, load_of(5, 3, 0.1)) == [1]
    assert encoded(batcher, LATER_S, load_of(4, 4, 0.1)) == []
    assert encoded(batcher, LATER_S, load_of(6, 2, 0.1)) == [2, 3]


def test_beams_of_what_may_be_dropped_leave_slots_free() -> None:
    """Unless nothing else runs: a search that needs more than that may have all slots then."""
    limits = BatchLimits(max_waiting=100, max_batch=4, max_wait_s=0.01, max_decode_stall_s=10.0, n_slots=8)
    batcher = batcher_with(replace(speculative(1), n_slots=5), replace(speculative(2, "b"), n_slots=2), limits=limits)
    assert encoded(batcher, LATER_S, load_of(6, 2, 0.1)) == []
    assert encoded(batcher, LATER_S, load_of(8, 0, 0.1)) == [1]
    assert encoded(batcher, LATER_S, load_of(3, 5, 0.1)) == []
    assert encoded(batcher, LATER_S, load_of(4, 4, 0.1)) == [2]
    batcher = batcher_with(replace(speculative(3), n_slots=7), limits=limits)
    assert encoded(batcher, LATER_S, load_of(7, 1, 0.1)) == []
    assert encoded(batcher, LATER_S, load_of(8, 0, 0.1)) == [3]


def test_a_newer_window_takes_the_place_of_the_older() -> None:
    """Its place in line and its time of waiting; other channels, sessions and kinds keep theirs."""
    batcher = batcher_with(interim(1, "a"), interim(2, "b"), interim(3, "a", channel=1))
    assert batcher.add(interim(4, "a"), 0.005) == interim(1, "a")
    assert encoded(batcher, 0.01, IDLE) == [4, 2, 3]
    batcher = batcher_with(speculative(1), interim(2))
    assert batcher.add(speculative(3), 0.0) == speculative(1)
    assert encoded(batcher, LATER_S, IDLE) == [3, 2]


def test_full_queue_refuses_but_still_lets_interims_be_replaced() -> None:
    """Replacing does not make the queue longer. Finals do not count, and always have room."""
    limits = replace(LIMITS, max_waiting=2)
    batcher = batcher_with(final(0), interim(1), speculative(2, "b"), limits=limits)
    for refused in interim(3, "c"), speculative(4, "c"):
        with pytest.raises(EngineOverloaded, match="2 windows wait, the limit is 2"):
            batcher.add(refused, 0.0)
    batcher.add(final(5, "c"), 0.0)
    assert batcher.add(interim(6), 0.0) == interim(1)
    assert encoded(batcher, LATER_S, IDLE) == [0, 5, 2, 6]


def test_files_and_interims_share_the_time_that_finals_leave() -> None:
    """Half each, while both wait. A file alone has all of it."""
    batcher = batcher_with(*(file(id, str(id)) for id in range(8)), *(interim(10 + id, f"i{id}") for id in range(4)))
    batches = [encoded(batcher, LATER_S, load_of(1, 0, 0.1)) for _ in range(12)]
    first = [id for batch in batches[:8] for id in batch]
    assert sorted(first) == [0, 1, 2, 3, 10, 11, 12, 13]
    assert [id for batch in batches[8:] for id in batch] == [4, 5, 6, 7]


def test_files_leave_slots_free_while_there_are_live_sessions() -> None:
    """As interims do. Without live sessions they take all."""
    limits = replace(LIMITS, n_slots=4)
    files = [file(id, str(id)) for id in range(4)]
    assert encoded(batcher_with(*files, limits=limits), LATER_S, load_of(4, 0, 0.1)) == [0, 1, 2, 3]
    batcher = batcher_with(*files, interim(4), limits=limits)
    assert batcher.remove(4)
    assert encoded(batcher, LATER_S, load_of(4, 0, 0.1)) == [0, 1, 2]
    assert encoded(batcher, LATER_S, load_of(1, 3, 0.1)) == []
    assert encoded(batcher, LIVE_MEMORY_S + 0.1, load_of(1, 3, 0.1)) == [3]


def test_speculative_finals_give_way_where_finals_take_much_of_the_time() -> None:
    """They wait while interims wait or sequences run, and come again when the load has passed or nothing else waits."""
    batcher = batcher_with(*(final(id) for id in range(4)), speculative(4, "b"), interim(5, "c"))
    # Four finals of 0.25 s in 2 s are half of the time.
    busy = load_of(8, 0, 0.25)
    assert encoded(batcher, LATER_S, busy) == [0, 1, 2, 3]
    assert encoded(batcher, LATER_S, load_of(8, 1, 0.25)) == [5]
    assert encoded(batcher, LATER_S, load_of(8, 1, 0.25)) == []
    assert encoded(batcher, LATER_S, busy) == [4], "nothing else is to be done"
    batcher.add(speculative(6, "b"), LATER_S)
    batcher.add(interim(7, "c"), LATER_S)
    assert encoded(batcher, LATER_S + 0.02, load_of(8, 1, 0.25)) == [7]
    assert encoded(batcher, LATER_S + 2.0, load_of(8, 1, 0.25)) == [6]


windows = st.tuples(st.sampled_from("abcd"), st.integers(0, 1), st.sampled_from(Priority))
actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), windows),
        st.tuples(st.just("remove"), st.integers(0, 60)),
        st.tuples(
            st.just("take"),
            st.tuples(
                st.integers(0, 6),
                st.integers(0, 3),
                st.sampled_from([0.05, 0.15, 1.0]),
                st.sampled_from([0.0, 0.4, 1.0]),
            ),
        ),
    ),
    max_size=80,
)


@given(actions)
def test_every_window_ends_exactly_once(actions: list[tuple[str, object]]) -> None:
    """Taken, removed, superseded or refused: whatever happens; and no batch exceeds slots or limits."""
    limits = BatchLimits(
        max_waiting=12, max_batch=4, max_wait_s=0.01, max_decode_stall_s=0.4, n_slots=6, shortens_decoding=True
    )
    batcher = Batcher(limits)
    ends: Counter[int] = Counter()
    added: list[Waiting] = []
    longest_s = 0.0
    for now_s, (action, argument) in enumerate(actions):
        match action, argument:
            case "add", (str() as session, int() as channel, Priority() as priority):
                added.append(window := Waiting(id=len(added), session=session, channel=channel, priority=priority))
                try:
                    older = batcher.add(window, now_s)
                except EngineOverloaded:
                    ends[window.id] += 1
                else:
                    ends.update([older.id] if older else [])
            case "remove", int() as id:
                ends.update([id] if batcher.remove(id) else [])
            case "take", (int() as n_free, int() as n_running, float() as encode_s, float() as debt):
                taken = encoded(batcher, now_s, load_of(n_free, n_running, encode_s, debt_fraction=debt))
                assert len(taken) <= min(n_free, 4)
                assert n_running == 0 or len(taken) * encode_s <= max(0.4, encode_s) + 1e-9
                ends.update(taken)
                priorities = [added[id].priority for id in taken]
                # Files and interims take turns.
                ranks = [min(priority, Priority.FILE) for priority in priorities]
                longest_s = max(longest_s, encode_s)
                # Where finals took much of the time, speculative finals give way.
                gave_way = longest_s > 0.05
                assert gave_way or ranks == sorted(ranks)
                has_droppable = any(priority.may_be_dropped for priority in priorities)
                leaves_reserve = has_droppable and Priority.FILE not in priorities
                assert not leaves_reserve or n_free - len(taken) >= limits.n_reserved_slots == 1
                assert not has_droppable or batcher.n_waiting(Priority.FINAL) == 0
                assert gave_way or Priority.INTERIM not in priorities or not batcher.n_waiting(Priority.SPECULATIVE)
    while taken := encoded(batcher, 1e9, IDLE):
        ends.update(taken)
    assert ends == Counter(window.id for window in added)


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=60), st.integers(1, 4))
def test_no_session_starves_another(arrivals: list[str], n_free: int) -> None:
    """The oldest final of every session is served within as many turns as there are sessions."""
    batcher = Batcher(LIMITS)
    lines: dict[str, deque[int]] = {}
    for id, session in enumerate(arrivals):
        batcher.add(final(id, session), 0.0)
        lines.setdefault(session, deque()).append(id)
    turns_waited = dict.fromkeys(lines, 0)
    while served := encoded(batcher, LATER_S, load_of(n_free, 0, 0.1)):
        for id in served:
            session = arrivals[id]
            assert lines[session].popleft() == id
            turns_waited = {other: turns + 1 for other, turns in turns_waited.items()} | {session: 0}
            assert all(turns_waited[other] < len(lines) for other, line in lines.items() if line)
    assert not any(lines.values())
