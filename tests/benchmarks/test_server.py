"""Servers of benchmarks: the port that they are told."""

import errno
import socket

import pytest

from benchmarks import server


def test_a_port_that_is_taken_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else goes wrong is raised: another port would not help."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        choices = [taken.getsockname()[1], port := server.free_port()]
        monkeypatch.setattr("secrets.choice", lambda ports: choices.pop(0))
        assert server.free_port() == port
    assert port in server.PORTS

    def fail(address: tuple[str, int]) -> socket.socket:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr("secrets.choice", min)
    monkeypatch.setattr("socket.create_server", fail)
    with pytest.raises(OSError, match="too many open files"):
        server.free_port()
