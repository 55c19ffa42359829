"""The queue between the callers' threads and the engine's thread."""

import threading

import numpy as np
import pytest

from tests.engine.fakes import PATIENCE_S
from tutti_server.engine.api import Priority, Window
from tutti_server.engine.errors import EngineFailed, EngineOverloaded
from tutti_server.engine.scheduling.batcher import BatchLimits, Load
from tutti_server.engine.scheduling.request import Request
from tutti_server.engine.scheduling.request_queue import RequestQueue

LIMITS = BatchLimits(max_waiting=2, max_batch=4, max_wait_s=0.0, max_decode_stall_s=0.4)


def request(session: str = "a", priority: Priority = Priority.FINAL) -> Request:
    window = Window(samples=np.zeros(16_000, np.float32), session=session, priority=priority)
    return Request(window=window, max_tokens=9, put=lambda item: None)


def idle() -> Load:
    return Load(n_free_slots=4, n_running=0, window_encode_s=0.1)


def busy() -> Load:
    return Load(n_free_slots=0, n_running=4, window_encode_s=0.1)


def test_requests_come_out_once_and_in_order() -> None:
    queue = RequestQueue(LIMITS)
    first, second = request("a"), request("b")
    assert queue.add(first, 1.0) is queue.add(second, 1.0) is None
    assert queue.n_waiting(Priority.FINAL) == 2
    assert queue.next_batch(idle, may_sleep=False) == [first, second]
    assert queue.next_batch(idle, may_sleep=False) == []
    assert queue.n_waiting(Priority.FINAL) == 0


def test_a_cancelled_request_never_comes_out() -> None:
    """Cancelling tells whether it still waited, and marks it at any stage."""
    queue = RequestQueue(LIMITS)
    waiting, taken = request(), request()
    queue.add(taken, 1.0)
    assert queue.next_batch(idle, may_sleep=False) == [taken]
    queue.add(waiting, 1.0)
    assert queue.cancel(waiting) and not queue.cancel(waiting) and not queue.cancel(taken)
    assert waiting.is_cancelled and taken.is_cancelled
    assert queue.next_batch(idle, may_sleep=False) == []


def test_a_newer_interim_supersedes_the_older_one() -> None:
    queue = RequestQueue(LIMITS)
    older, newer = request(priority=Priority.INTERIM), request(priority=Priority.INTERIM)
    queue.add(older, 1.0)
    assert queue.add(newer, 1.0) is older
    assert queue.next_batch(idle, may_sleep=False) == [newer]


def test_a_full_queue_refuses_interims_alone() -> None:
    queue = RequestQueue(LIMITS)
    for session in "ab":
        queue.add(request(session, Priority.INTERIM), 1.0)
    with pytest.raises(EngineOverloaded):
        queue.add(request("c", Priority.INTERIM), 1.0)
    queue.add(request("c"), 1.0)
    assert queue.n_waiting(Priority.FINAL) == 1


def test_running_sequences_are_not_kept_waiting() -> None:
    """Without a free slot the worker goes on at once, also where it may sleep."""
    queue = RequestQueue(LIMITS)
    queue.add(request(), 1.0)
    assert queue.next_batch(busy, may_sleep=True) == []


@pytest.mark.parametrize("event", ["add", "close"])
def test_a_sleeping_worker_is_woken(event: str) -> None:
    """By a new request, and when the queue closes."""
    queue, new, batches = RequestQueue(LIMITS), request(), list[list[Request]]()
    is_asleep = threading.Event()

    def load() -> Load:
        is_asleep.set()
        return idle()

    worker = threading.Thread(target=lambda: batches.append(queue.next_batch(load, may_sleep=True)))
    worker.start()
    assert is_asleep.wait(PATIENCE_S)
    if event == "add":
        queue.add(new, 1.0)
    else:
        queue.close()
    worker.join(PATIENCE_S)
    assert batches == [[new] if event == "add" else []]


def test_a_drained_queue_is_closed_and_says_why() -> None:
    """What waited is handed back, to be failed; later requests fail with the same cause."""
    queue, waiting, fault = RequestQueue(LIMITS), request(), RuntimeError("out of memory")
    queue.add(waiting, 1.0)
    assert queue.drain(fault) == [waiting]
    assert queue.is_closed and queue.closed_error().__cause__ is fault
    with pytest.raises(EngineFailed, match="the engine has died"):
        queue.add(request(), 1.0)
