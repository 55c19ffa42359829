"""The configurations of nginx, HAProxy and Envoy: run by the real programs where they are installed."""

import asyncio
import os
import re
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
import yaml

import tutti
from tests.app.conftest import Running, running
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.fakes import FakeTranscriber, said, silence, speech
from tests.test_deploy import NGINX, paths, seconds
from tutti_server.app.media.decoder_workers import Decoders
from tutti_server.app.server.http_protocols import KEEP_ALIVE_S, MAX_HEAD_BYTES
from tutti_server.app.server.main import PING_INTERVAL_S
from tutti_server.app.service.settings import Settings

DEPLOY = Path(__file__).parents[1] / "deploy"
HAPROXY = (DEPLOY / "haproxy/haproxy.cfg").read_text()
ENVOY: dict[str, Any] = yaml.safe_load((DEPLOY / "envoy/envoy.yaml").read_text())
PROGRAMS = ("nginx", "haproxy")
PATIENCE_S = 60
"""The time limit of each test with a program, in seconds."""
CERTIFICATE = "/etc/ssl/captions"
"""The certificate in the configurations, without what follows the name."""
MIN_IDLE_S = 3 * PING_INTERVAL_S
"""A load balancer must wait for at least this long until it closes a silent connection: two pings may be late."""
RESPONSE_S = 3600
"""How long a load balancer must wait for the response to a long file, in seconds."""


@dataclass(frozen=True)
class Balancer:
    """A running load balancer, and the servers behind it."""

    address: str
    tls: ssl.SSLContext
    """Trusts its certificate."""
    servers: list[Running]

    def connect(self) -> Any:
        return tutti.connect(f"wss://{self.address}", ssl=self.tls, language="en", silence_ms=300)

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"https://{self.address}", verify=self.tls, timeout=PATIENCE_S)


def with_servers(text: str, addresses: list[str]) -> str:
    """The configuration with a line for each of these servers."""
    line = re.search(r"^ *server (tutti-1 )?127\.0\.0\.1:8000.*\n", text, re.MULTILINE)
    assert line
    lines = [
        line[0].replace("127.0.0.1:8000", address).replace("tutti-1", f"tutti-{number}")
        for number, address in enumerate(addresses, 1)
    ]
    return text.replace(line[0], "".join(lines))


def command(name: str, addresses: list[str], listener: socket.socket, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The program's arguments for our configuration on an open socket, and what it needs in its environment."""
    port, file = listener.getsockname()[1], folder / "balancer.conf"
    text = NGINX if name == "nginx" else HAPROXY
    text = with_servers(text.replace(CERTIFICATE, f"{folder}/captions"), addresses)
    if name == "haproxy":
        # As many connections as any machine allows.
        text = text.replace("maxconn 10000", "maxconn 100").replace("bind :443", f"bind fd@{listener.fileno()}")
        file.write_text(text)
        return ["-db", "-f", str(file)], {}
    text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    # Workers of root would be another user, who cannot read the folder.
    user = "user root;" if os.geteuid() == 0 else ""
    main = f"daemon off; {user} pid {folder}/pid; error_log stderr; events {{}}"
    temporary = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file.write_text(f"{main} http {{ access_log off; {temporary} {text} }}")
    # It takes over the open socket, as it would of a program that it replaces.
    return ["-p", str(folder), "-c", str(file)], {"NGINX": f"{listener.fileno()};"}


@asynccontextmanager
async def balancing(name: str, servers: list[Running], folder: Path) -> AsyncIterator[Balancer]:
    """Run the program with our configuration in front of the servers."""
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if program is None:
        if os.environ.get("TUTTI_REQUIRE_PROXIES") == "1":
            pytest.fail(f"{name} is not installed: apt install {name}")
        pytest.skip(f"{name} is not installed: apt install {name}")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(folder / "captions.key"))
    issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "captions.pem"))
    tls = ssl.create_default_context()
    authority.configure_trust(tls)
    # Open before the program starts, so that connections wait for it.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        arguments, environment = command(name, [each.address for each in servers], listener, folder)
        process = await asyncio.create_subprocess_exec(
            program, *arguments, pass_fds=[listener.fileno()], env=os.environ | environment
        )
    try:
        yield Balancer(address, tls, servers)
        assert process.returncode is None, f"{name} ended with {process.returncode}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def balanced(name: str, folder: Path, decoders: Decoders, n_servers: int = 1) -> AsyncIterator[Balancer]:
    """Run servers with the fake engine, and the program in front of them."""
    settings = Settings(port=0, drain_timeout_s=10.0)
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        started = [running(settings, FakeTranscriber(), decoders=decoders) for _ in range(n_servers)]
        servers = [await stack.enter_async_context(each) for each in started]
        yield await stack.enter_async_context(balancing(name, servers, folder))


def pcm(numbers: range) -> bytes:
    """These words and a pause, as 16-bit samples."""
    return b"".join((part * 32767).round().astype("<i2").tobytes() for part in (speech(numbers), silence(0.5)))


@contextmanager
def filled(server: Running) -> Iterator[None]:
    """The limit of sessions is reached."""
    with ExitStack() as sessions:
        for _ in range(server.service.settings.max_sessions):
            sessions.enter_context(server.service.shared.counter.one_more("sessions"))
        yield


async def text_of(session: tutti.Session) -> str:
    """The text of the rest of a session."""
    return " ".join([event.text.strip() async for event in session if isinstance(event, tutti.Utterance)])


@pytest.mark.parametrize("name", PROGRAMS)
async def test_sessions_and_files_pass(name: str, tmp_path: Path, decoders: Decoders) -> None:
    """So do heads as long as the server's own limit allows, and files that are longer than the proxy's default."""
    async with balanced(name, tmp_path, decoders) as balancer, balancer.http() as http:
        async with balancer.connect() as session:
            await session.send(pcm(range(10, 13)))
            await session.stop()
            assert await text_of(session) == said(range(10, 13))
        response = await http.get("/v1/models", params={"keyterms": "x" * (MAX_HEAD_BYTES - 2000)})
        assert response.status_code == 200
        files = {"file": ("silence.wav", wav(silence(70.0)))}
        response = await http.post("/v1/audio/transcriptions", files=files)
        assert (response.status_code, response.json()["text"]) == (200, "")


@pytest.mark.parametrize("name", PROGRAMS)
async def test_metrics_are_not_shown_outside(name: str, tmp_path: Path, decoders: Decoders) -> None:
    async with balanced(name, tmp_path, decoders) as balancer, balancer.http() as http:
        for path in ("/metrics", "/%6Detrics", "/metrics%0A"):
            assert (await http.get(path)).status_code == 403
        assert (await http.get("/readyz")).status_code == 200


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_server_without_room_passes_newcomers_on(name: str, tmp_path: Path, decoders: Decoders) -> None:
    """The client notices nothing of its 503, and it remains a server for what comes later."""
    async with balanced(name, tmp_path, decoders, n_servers=2) as balancer:
        first, second = balancer.servers
        with filled(first):
            for _ in range(4):
                async with balancer.connect():
                    pass
        assert second.metric("tutti_sessions_total") == 4
        assert first.metric("tutti_refused_total", reason="overloaded") > 0
        with filled(second):
            async with balancer.connect():
                pass
        assert first.metric("tutti_sessions_total") == 1


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_session_moves_when_its_server_drains(name: str, tmp_path: Path, decoders: Decoders) -> None:
    """Without sticky routing: the client comes back through the load balancer, and no word is lost or repeated."""
    async with balanced(name, tmp_path, decoders, n_servers=2) as balancer, balancer.connect() as session:
        await session.send(pcm(range(10, 13)))
        texts = []
        async for event in session:
            if isinstance(event, tutti.Utterance):
                texts.append(event.text.strip())
                break
        (left,) = (each for each in balancer.servers if each.service.admission.sessions)
        left.server.stop()
        async for event in session:
            if isinstance(event, tutti.Resumed):
                break
        await session.send(pcm(range(20, 23)))
        await session.stop()
        texts.append(await text_of(session))
        assert " ".join(texts) == f"{said(range(10, 13))} {said(range(20, 23))}"
        (other,) = (each for each in balancer.servers if each is not left)
        assert other.metric("tutti_sessions_total") == 1


# What their values mean.


def test_quiet_sockets_stay_open_and_long_files_are_awaited() -> None:
    """The server's pings come several times before a load balancer gives up; nothing ends a long session."""
    nginx = {name: seconds(value) for name, value in re.findall(r"proxy_(read|send)_timeout (\w+);", NGINX)}
    assert nginx.keys() == {"read", "send"}
    assert min(nginx.values()) >= max(MIN_IDLE_S, RESPONSE_S)
    haproxy = {name: seconds(value) for name, value in re.findall(r"timeout ([\w-]+) (\w+)\n", HAPROXY)}
    assert haproxy["tunnel"] >= MIN_IDLE_S
    assert haproxy["server"] >= RESPONSE_S
    assert haproxy["client"] >= MIN_IDLE_S
    manager = connection_manager()
    assert seconds(manager["stream_idle_timeout"]) >= max(MIN_IDLE_S, RESPONSE_S)
    assert all(route["route"]["timeout"] == "0s" for route in envoy_routes() if "route" in route)


def test_envoy_closes_idle_connections_before_the_server_does() -> None:
    """Else a request might go out on a connection that is just being closed."""
    (cluster,) = ENVOY["static_resources"]["clusters"]
    (options,) = cluster["typed_extension_protocol_options"].values()
    assert seconds(options["common_http_protocol_options"]["idle_timeout"]) < KEEP_ALIVE_S


def connection_manager() -> dict[str, Any]:
    """Envoy's settings of HTTP."""
    ((chain,),) = (each["filter_chains"] for each in ENVOY["static_resources"]["listeners"])
    (manager,) = (each["typed_config"] for each in chain["filters"])
    found: dict[str, Any] = manager
    return found


def envoy_routes() -> list[dict[str, Any]]:
    (host,) = connection_manager()["route_config"]["virtual_hosts"]
    found: list[dict[str, Any]] = host["routes"]
    return found


def test_envoy_forwards_websockets_and_shows_no_metrics() -> None:
    """The route of the metrics comes before the one of everything, and is that of each way to write its path."""
    manager = connection_manager()
    assert manager["normalize_path"] is True
    assert manager["upgrade_configs"] == [{"upgrade_type": "websocket"}]
    assert manager["max_request_headers_kb"] * 1024 > MAX_HEAD_BYTES
    metrics, everything = envoy_routes()
    assert metrics == {"match": {"prefix": "/metrics"}, "direct_response": {"status": 403}}
    assert everything["match"] == {"prefix": "/"}


def test_every_balancer_asks_for_the_readiness_of_the_service() -> None:
    """A draining server gets nothing new; nginx, which does not ask by itself, passes on what was refused."""
    (cluster,) = ENVOY["static_resources"]["clusters"]
    (check,) = cluster["health_checks"]
    (asked,) = re.findall(r"option httpchk GET (\S+)", HAPROXY)
    assert {asked, check["http_health_check"]["path"]} == {"/readyz"}
    assert "/readyz" in paths()
    # Else a server that is full for a moment would get nothing for ten seconds.
    assert re.search(r"server \S+ max_fails=0;", NGINX)


@pytest.mark.parametrize("hosts", ["", "captions.example.org"])
async def test_envoy_finds_a_server_ready_that_listens_to_names(hosts: str) -> None:
    """Without keys, and with the names that its operator lists."""
    (cluster,) = ENVOY["static_resources"]["clusters"]
    check = cluster["health_checks"][0]["http_health_check"]
    settings = Settings(host="127.0.0.1", port=0, allowed_hosts=hosts)
    async with running(settings, FakeTranscriber()) as server, httpx.AsyncClient() as http:
        asked = {"host": check.get("host", cluster["name"])}
        response = await http.get(f"http://{server.address}{check['path']}", headers=asked)
    assert response.status_code == 200, response.text
