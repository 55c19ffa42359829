"""When a dead process is started again, and when the supervisor gives up."""

from tutti_server.cluster.local.restart_policy import MAX_PAUSE_S, STABLE_AFTER_S, RestartPolicy, restart_pause_s


def test_pauses_grow_and_starts_that_fail_in_a_row_are_counted() -> None:
    """A process that ran for `STABLE_AFTER_S` needs no pause; a start that succeeds sets the count back."""
    policy = RestartPolicy(first_pause_s=0.5, max_failed_starts=2)
    assert [policy.note_end(was_ready=True, lifetime_s=1.0) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert policy.note_end(was_ready=True, lifetime_s=STABLE_AFTER_S) == 0.0
    assert restart_pause_s(1000, 0.5) == MAX_PAUSE_S
    pauses = [policy.note_end(was_ready=was_ready, lifetime_s=1.0) for was_ready in (False, True, False, False)]
    assert [pause is None for pause in pauses] == [False, False, False, True]
