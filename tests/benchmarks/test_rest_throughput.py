"""The throughput of the REST endpoint: how requests are shared out among the processes of clients."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import rest_throughput
from benchmarks.rest_throughput import ClientLoad


def test_every_request_is_sent_by_however_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four processes two are enough for two requests at a time."""
    sent: list[ClientLoad] = []

    def note(work: object, loads: list[ClientLoad]) -> list[object]:
        sent.extend(loads)
        return []

    pool: Any = SimpleNamespace(map=note)
    server: Any = SimpleNamespace(url="", pid=os.getpid(), fetch=lambda path: "")
    monkeypatch.setattr(rest_throughput, "SETTLED_S", 0.0)
    rest_throughput.measure_service(server, pool, [b"a", b"b"], concurrency=2, n_requests=8, processes=4)
    assert [(load.n_requests, load.n_at_once, load.files) for load in sent] == [(4, 1, (b"a",)), (4, 1, (b"b",))]
