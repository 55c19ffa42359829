"""When a dead process is started again, and when the supervisor gives up."""

from tutti_server.cluster.local.restart_policy import MAX_PAUSE_S, STABLE_AFTER_S, RestartPolicy, restart_pause_s


def test_pauses_grow_up_to_a_bound() -> None:
    """There is none after the first crash, and none is longer than the limit."""
    assert [restart_pause_s(n, 0.5) for n in range(1, 6)] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert restart_pause_s(1000, 0.5) == MAX_PAUSE_S


def test_a_stable_process_starts_the_count_of_crashes_again() -> None:
    """A crash after `STABLE_AFTER_S` counts as the first one, and needs no pause."""
    policy = RestartPolicy(first_pause_s=0.5, max_failed_starts=2)
    assert [policy.note_end(was_ready=True, lifetime_s=1.0) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert policy.note_end(was_ready=True, lifetime_s=STABLE_AFTER_S) == 0.0


def test_starts_that_fail_in_a_row_are_counted() -> None:
    """The policy gives up at `max_failed_starts`; a start that succeeds sets the count back."""
    policy = RestartPolicy(first_pause_s=0.5, max_failed_starts=2)
    assert policy.note_end(was_ready=False, lifetime_s=1.0) is not None
    assert policy.note_end(was_ready=True, lifetime_s=1.0) is not None
    assert policy.note_end(was_ready=False, lifetime_s=1.0) is not None
    assert policy.note_end(was_ready=False, lifetime_s=1.0) is None
