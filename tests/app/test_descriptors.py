"""A process that may open few files survives as many connections as clients like to make."""

import errno
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.app.dialects.openai.test_files_endpoint import TALK, wav
from tutti_server.app.service.settings import Settings

PATIENCE_S = 30.0
SCRIPT = """
import asyncio, os, resource, uvloop
from tutti_server.app.server.main import Server, bind, build_app
from tutti_server.app.service.settings import Settings
from tutti_server.app.session.core.options import SessionConfig
from tests.fakes import FakeTranscriber, LevelDetector

async def main():
    settings = Settings(port=0)
    app = build_app(settings, FakeTranscriber(), SessionConfig(make_detector=LevelDetector))

    def limit():
        n_open = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (n_open + 12, 4096))
        print(listener.getsockname()[1], flush=True)

    with bind(settings) as listener:
        await Server(app, settings, on_started=limit).serve([listener])

uvloop.run(main())
"""


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server has closed a connection, but not until it cuts off others that send nothing."""
    connection.settimeout(0.8 * Settings().head_timeout_s)
    try:
        return connection.recv(1) == b""
    except OSError as error:
        return error.errno == errno.ECONNRESET


def until_answered(send: Callable[[], httpx.Response], status: int) -> httpx.Response:
    """Send requests until one has this answer: the server sees the end of closed connections a moment later."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            response = send()
        except httpx.TransportError:
            assert time.monotonic() < deadline_s
        else:
            if response.status_code == status or time.monotonic() > deadline_s:
                assert response.status_code == status
                return response


def test_a_lack_of_descriptors_refuses_clients_and_ends_nothing(tmp_path: Path) -> None:
    """Connections without room are closed, an upload without room is answered with 503, and later all is well."""
    script = tmp_path / "server.py"
    script.write_text(SCRIPT)
    server = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        assert server.stdout
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        flood = [socket.create_connection(address, PATIENCE_S) for _ in range(30)]
        assert is_closed(flood[-1]), "there is no descriptor left"
        for connection in flood:
            connection.close()
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:

            def upload() -> httpx.Response:
                return client.post("/v1/audio/transcriptions", files={"file": ("talk.wav", wav(TALK[::2], 8_000))})

            until_answered(lambda: client.get("/healthz"), 200)
            few = [socket.create_connection(address, PATIENCE_S) for _ in range(7)]
            assert "too many open files" in until_answered(upload, 503).text
            for connection in few:
                connection.close()
            until_answered(upload, 200)
            assert client.get("/healthz").status_code == 200
        assert server.poll() is None
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE_S)
    assert server.returncode == 0
