"""Plug-ins: none at all, one of another package, and those that cannot be used."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.app.conftest import Serve
from tests.fakes import FakeTranscriber, said, speech
from tutti_server.app.cli.commands import cli
from tutti_server.app.errors import SettingsError
from tutti_server.app.server import plugins
from tutti_server.app.server.main import Server, build_app
from tutti_server.app.server.plugins import Plugin, check_environment, find_plugins, installed_plugins, make_settings
from tutti_server.app.service.account_service import AccountService
from tutti_server.app.service.service import Service
from tutti_server.app.service.settings import Settings

PLUGIN = """
import asyncio
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass

import click
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tutti_server.app.errors import SettingsError
from tutti_server.app.server.plugins import Plugin
from tutti_server.app.service.account_service import AccountService
from tutti_server.app.service.settings import PluginSettings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class GreeterSettings(PluginSettings):
    greeting: str = setting("hello", "What the greeter says.")

    def check(self, settings):
        if self.greeting == settings.host:
            raise SettingsError(f"greeting: expected another text than host, got {self.greeting}")


class Greetings:
    def bind(self, *, shares_port=False):
        return socket.create_server(("127.0.0.1", 0), reuse_port=shares_port)

    async def serve(self, listener, app):
        async def greet(reader, writer):
            writer.write(app.state.service.settings.of(GreeterSettings).greeting.encode())
            writer.close()

        Greeter.port = listener.getsockname()[1]
        return await asyncio.start_server(greet, sock=listener)


class Greeter(Plugin):
    name = "greeter"
    settings = GreeterSettings
    port = 0
    has_stopped = False

    def routes(self, service):
        async def greet(request):
            return PlainTextResponse(f"{service.settings.of(GreeterSettings).greeting}, {service.model}")

        return [Route("/greet", greet)]

    def commands(self):
        return [click.Command("greeter", callback=lambda: click.echo("hello"))]

    def openapi(self):
        return {"/greet": {"get": {"operationId": "greet", "responses": {"200": {"description": "A greeting."}}}}}

    def listeners(self, settings):
        return [Greetings()]

    @asynccontextmanager
    async def running(self, service):
        service.model = service.transcriber.info.name
        yield
        Greeter.has_stopped = True


plugin = Greeter()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages. Plug-ins are looked for again, before and after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    installed_plugins.cache_clear()
    yield tmp_path
    installed_plugins.cache_clear()
    sys.modules.pop("greeter", None)


def install(folder: Path, code: str) -> None:
    """Install a package with one module and one entry point, as pip does."""
    (folder / "greeter.py").write_text(code)
    metadata = folder / "greeter-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{plugins.GROUP}]\ngreeter = greeter:plugin\n")


@pytest.fixture
def bare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the folder `plugins`."""
    for name in [*sys.modules]:
        if name.startswith("tutti_server.plugins"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tutti_server.plugins", None)


async def test_a_plugin_of_another_package_has_routes_settings_port_and_lifespan(folder: Path, serve: Serve) -> None:
    install(folder, PLUGIN)
    server = await serve(greeting="good day")
    assert (await server.get("/greet")).text == f"good day, {server.transcriber.info.name}"
    assert "greet" in json.dumps((await server.get("/openapi.json")).json()["paths"]["/greet"])
    greeter = sys.modules["greeter"].Greeter
    reader, writer = await asyncio.open_connection("127.0.0.1", greeter.port)
    assert await reader.read() == b"good day"
    writer.close()
    server.server.stop()
    await server.task
    assert greeter.has_stopped


async def test_the_plugin_of_the_documentation_works(folder: Path, serve: Serve) -> None:
    page = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()
    (code,) = re.findall(r"```python\n# tutti_greeter\.py\n(.*?)```", page, re.DOTALL)
    install(folder, code)
    server = await serve()
    assert (await server.get("/greet")).text == "hello"


def test_its_settings_are_flags_and_variables_and_its_commands_those_of_tutti(folder: Path) -> None:
    install(folder, PLUGIN)
    shown = CliRunner().invoke(cli, ["serve", "--help"], terminal_width=200).output
    assert "--greeting" in shown and "TUTTI_GREETING" in shown and "What the greeter says." in shown
    check_environment({"TUTTI_GREETING": "hi"})
    others = {name: None for name in os.environ if name.startswith("TUTTI_")}
    refused = CliRunner(env=others).invoke(cli, ["serve", "--greeting", "127.0.0.1"])
    assert refused.output == "Error: greeting: expected another text than host, got 127.0.0.1\n"
    assert "greeter" in CliRunner().invoke(cli, ["--help"]).output
    assert CliRunner().invoke(cli, ["greeter"]).output == "hello\n"


async def test_a_server_without_plugins_serves_all_else(bare: None, serve: Serve) -> None:
    assert find_plugins() == ()
    server = await serve()
    async with connect(server.stream) as client:
        await client.send(json.dumps({"type": "start"}))
        await client.send((speech([1]) * 32767).astype("<i2").tobytes())
        await client.send(json.dumps({"type": "stop"}))
        texts = [message.get("text") for message in [json.loads(each) async for each in client]]
    assert said([1]) in texts
    for carrier in ("audiohook", "vonage"):
        # As for every other path without an endpoint.
        with pytest.raises(InvalidStatus, match="404"):
            await connect(f"ws://{server.address}/v1/{carrier}")
        assert (await server.get(f"/v1/{carrier}")).status_code == 404
    paths = (await server.get("/openapi.json")).json()["paths"]
    for path in ("/v1/audiosocket/calls", "/v1/jobs", "/v1/usage"):
        assert (await server.post(path)).status_code == 404 and path not in paths
    # Its own sessions, and nothing of jobs and of keys of a database.
    metrics = (await server.get("/metrics")).text
    assert "tutti_sessions_open" in metrics and "tutti_job" not in metrics and "tutti_key" not in metrics
    refused = await server.post("/v1/listen?callback=https://example.org/", content=b"x")
    assert refused.status_code == 400 and "this server takes in no jobs" in refused.json()["err_msg"]


@pytest.mark.parametrize(
    ("name", "plugin"),
    [("AUDIOSOCKET_PORT", "carriers"), ("JOBS", "accounts"), ("JOB_SPOOL", "accounts"), ("DATABASE_KEYS", "accounts")],
)
def test_a_variable_of_a_missing_plugin_names_it(bare: None, name: str, plugin: str) -> None:
    with pytest.raises(SettingsError, match=rf"TUTTI_{name} \(of the plug-in {plugin}, which is not installed\)"):
        check_environment({f"TUTTI_{name}": "9"})


def test_a_missing_plugin_has_no_flags_and_no_commands(bare: None) -> None:
    refused = CliRunner().invoke(cli, ["serve", "--audiosocket-port", "9"])
    assert refused.exit_code == 2
    assert "No such option '--audiosocket-port' (of the plug-in carriers, which is not installed)" in refused.output
    assert "keys" not in CliRunner().invoke(cli, ["--help"]).output.partition("Commands:")[2]
    assert "No such command 'keys'" in CliRunner().invoke(cli, ["keys"]).output


async def test_a_plugin_that_cannot_start_stops_the_server_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """The plug-ins that have started before it are stopped, and no client is accepted."""
    done: list[str] = []

    class Starting(Plugin):
        name = "starting"

        @asynccontextmanager
        async def running(self, service: Service) -> AsyncIterator[None]:
            done.append("started")
            try:
                yield
            finally:
                done.append("stopped")

    class Failing(Plugin):
        name = "failing"

        @asynccontextmanager
        async def running(self, service: Service) -> AsyncIterator[None]:
            raise SettingsError("greeting: expected a tape that exists, got none")
            yield

    app = build_app(Settings(), FakeTranscriber(), plugins=[Starting(), Failing()])
    server = Server(app, Settings(), on_started=lambda: done.append("accepts clients"))
    with pytest.raises(SettingsError, match="greeting: expected a tape"):
        await server.serve()
    assert done == ["started", "stopped"]
    assert "Traceback" not in caplog.text


def test_accounts_are_those_of_one_plugin() -> None:
    """Two would each answer whether a key is valid."""

    class WithAccounts(Plugin):
        name = "with accounts"

        def accounts(self, service: Service) -> AccountService:
            return AccountService()

    with pytest.raises(SettingsError, match="plug-ins: expected one with accounts, got AccountService and"):
        build_app(Settings(), FakeTranscriber(), plugins=[WithAccounts(), WithAccounts()])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import nothing_like_this", "plug-in greeter: cannot be loaded: ModuleNotFoundError"),
        ("", "plug-in greeter: cannot be loaded: AttributeError"),
        ("plugin = 5", "plug-in greeter: expected an object of the class Plugin, with a name, got 5"),
        (PLUGIN.replace('    name = "greeter"\n', ""), "an object of the class Plugin, with a name, got <greeter"),
        (PLUGIN.replace("@dataclass(frozen=True, slots=True, kw_only=True)\n", ""), "a class with @dataclass"),
        (PLUGIN.replace("(PluginSettings)", ""), "a class with @dataclass that derives from PluginSettings"),
        (PLUGIN.replace("= GreeterSettings", "= GreeterSettings()"), r"as its settings, got GreeterSettings\("),
        (PLUGIN.replace("greeting: str", "greeting: str | None"), r"str as the type of greeting, got str \| None"),
        (f"from __future__ import annotations\n{PLUGIN}", "got 'str', as with annotations from __future__"),
        (PLUGIN.replace('setting("hello", "What the greeter says.")', '"hello"'), r"greeting to be made by setting\("),
        (PLUGIN.replace("greeting:", "Greeting:"), "expected a setting in lower case, got Greeting"),
        (PLUGIN.replace("greeting:", "help:"), "expected a new setting, got help, as each command has"),
        (PLUGIN.replace("greeting:", "port:"), "expected a new setting, got port, as tutti itself"),
        (PLUGIN.replace("greeting:", "audiosocket_port:"), "as the plug-in carriers has"),
    ],
)
def test_a_plugin_that_cannot_be_used_stops_the_start(folder: Path, code: str, expected: str) -> None:
    install(folder, code)
    with pytest.raises(SettingsError, match=expected):
        make_settings({})
    refused = CliRunner().invoke(cli, ["serve", "--port", "0"])
    assert refused.exit_code == 1 and refused.output.startswith("Error: plug-in greeter")
