"""Real servers on loopback ports, around one engine with the small model, for clients of any kind.

They run on an event loop in a thread of its own, so that a test may use a client that blocks.
"""

import asyncio
import json
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.node import require_packages
from tests.recordings import AUDIO
from tests.small_model import SMALL_MODEL, small_settings
from tutti_server.app.server.main import Server, bind, build_app
from tutti_server.app.service.service import Service
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.tls import load_tls
from tutti_server.engine.api import Transcriber
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

KEY = "sk-a-key-for-tests"
JS = Path(__file__).parent / "js"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
IDLE_TIMEOUT_S = 20
NPM_TIMEOUT_S = 300
SCRIPT_TIMEOUT_S = 60


@dataclass(frozen=True)
class Running:
    """A server that is up."""

    address: str
    """Host and port."""
    service: Service
    loop: asyncio.AbstractEventLoop

    def wait_until_idle(self) -> None:
        """Until every session and upload is over."""
        asyncio.run_coroutine_threadsafe(self.service.admission.all_finished.wait(), self.loop).result(IDLE_TIMEOUT_S)

    @property
    def http(self) -> str:
        return f"http://{self.address}"

    @property
    def ws(self) -> str:
        return f"ws://{self.address}"


class Host:
    """The thread that servers run in."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="servers")
        self._thread.start()
        self._stack = AsyncExitStack()
        self._engine = self._run(self._stack.enter_async_context(_engine()), START_TIMEOUT_S)

    @contextmanager
    def running(self, transcriber: Transcriber | None = None, **values: Any) -> Iterator[Running]:
        """A server with these settings, around the engine or another transcriber."""
        settings = small_settings(**{"max_ahead_s": 600.0, "max_final_wait_s": 1000.0, **values})
        server = _running(settings, transcriber or self._engine)
        yield self._run(server.__aenter__(), START_TIMEOUT_S)
        self._run(server.__aexit__(None, None, None), STOP_TIMEOUT_S)

    def close(self) -> None:
        try:
            self._run(self._stack.aclose(), STOP_TIMEOUT_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_TIMEOUT_S)
            self._loop.close()

    def _run(self, work: Any, timeout_s: float) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)


class OtherServer:
    """A client's own server: has recordings, and receives answers.

    `statuses` are those of its first answers to what it is sent; it receives nothing that it refuses.
    """

    def __init__(self) -> None:
        self.received: queue.Queue[tuple[str, str, dict[str, str], bytes]] = queue.Queue()
        self.statuses: Iterator[int] = iter(())
        other = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = (AUDIO / self.path.removeprefix("/")).read_bytes()
                self._answer(content)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = next(other.statuses, 200)
                if status == 200:
                    other.received.put((self.command, self.path, headers, body))
                self._answer(b"", status)

            def do_PUT(self) -> None:
                self.do_POST()

            def _answer(self, content: bytes, status: int = 200) -> None:
                self.send_response(status)
                self.send_header("content-type", "audio/flac")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@asynccontextmanager
async def _engine() -> Any:
    async with Engine.start(EngineConfig(model=SMALL_MODEL)) as engine:
        yield engine
        stats = engine.stats()
        assert (stats.running, stats.waiting_finals, stats.waiting_interims) == (0, 0, 0), "windows were left open"


@asynccontextmanager
async def _running(settings: Settings, transcriber: Transcriber) -> Any:
    app = build_app(settings, transcriber)
    server = Server(app, settings, load_tls(settings))
    with bind(settings) as listener:
        serving = asyncio.create_task(server.serve([listener]))
        yield Running(f"127.0.0.1:{listener.getsockname()[1]}", app.state.service, asyncio.get_running_loop())
        server.stop()
        await serving


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    """At the end, no window may be open in the engine."""
    host = Host()
    yield host
    host.close()


@pytest.fixture(scope="session")
def server(host: Host) -> Iterator[Running]:
    """A server that needs no key."""
    with host.running() as server:
        yield server


@pytest.fixture(scope="session")
def locked_server(host: Host) -> Iterator[Running]:
    """A server that asks for `KEY`."""
    with host.running(api_keys=KEY) as server:
        yield server


@pytest.fixture
def start_server(host: Host) -> Iterator[Callable[..., Running]]:
    """Start a server with other settings, or with another transcriber, for one test."""
    with ExitStack() as servers:
        yield lambda *transcriber, **values: servers.enter_context(host.running(*transcriber, **values))


@pytest.fixture
def other() -> Iterator[OtherServer]:
    other = OtherServer()
    yield other
    other.close()


@pytest.fixture(scope="session")
def node() -> Callable[..., Any]:
    """Run a script of `tests/compat/js`, which is given its arguments as one JSON object and prints another one.

    A test that uses it is marked `node`, and is given the time that `npm ci` takes (`timeout`).
    """
    require_packages(JS)

    def run(script: str, **arguments: object) -> Any:
        command = ["node", script, json.dumps(arguments)]
        done = subprocess.run(
            command, cwd=JS, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SCRIPT_TIMEOUT_S
        )
        if done.returncode != 0:
            pytest.fail(f"{' '.join(command[:2])}\n{done.stdout}{done.stderr}", pytrace=False)
        return json.loads(done.stdout)

    return run
