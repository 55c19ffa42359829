"""Plug-ins: parts of the service that only some need. This module defines what a plug-in is, and finds them.

The service imports none of them by name. `docs/plugins.md` explains how to write one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import Field, fields
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.settings import ENV_PREFIX, REMOVED, PluginSettings, Settings, own_settings

if TYPE_CHECKING:
    import socket

    import click
    from starlette.applications import Starlette
    from starlette.routing import BaseRoute

    from tutti_server.app.service.account_service import AccountService
    from tutti_server.app.service.service import Service

GROUP = "tutti.plugins"
"""The group of entry points by which packages of others offer their plug-ins."""
OURS: Mapping[str, tuple[str, ...]] = {
    "tutti_server.plugins.accounts.plugin": (
        "callback_hosts",
        "data_folder",
        "database_",
        "job_",
        "jobs",
        "max_key_labels",
        "secret_keys_file",
    ),
    "tutti_server.plugins.carriers.plugin": ("audiohook_", "audiosocket_"),
    "tutti_server.plugins.telemetry.plugin": (),
    "tutti_server.plugins.wyoming.plugin": ("wyoming_",),
}
"""The plug-ins of this repository, and how the names of their settings begin.

A checkout finds them without being installed again, and an error about a missing one can name it.
"""


RESERVED = {"api_key": "each client of tutti", "help": "each command"}
"""Names of flags and variables that are no settings, and whose they are."""
SETTING_TYPES = (bool, int, float, str)


class ListenerServer(Protocol):
    """What serves a port, as `asyncio.Server` does."""

    def close(self) -> None:
        """Accept no more connections. Live sessions have been drained before."""
        ...

    async def wait_closed(self) -> None:
        """Wait until all connections have ended."""
        ...


class Listener(Protocol):
    """A port that a plug-in serves beside the port of HTTP."""

    def bind(self, *, shares_port: bool = False) -> "socket.socket":
        """Open the listening socket.

        Args:
            shares_port: whether other gateways listen on the same port. The kernel spreads connections over them.

        Raises:
            SettingsError: the address is in use or not available.
        """
        ...

    async def serve(self, listener: "socket.socket", app: "Starlette") -> "ListenerServer":
        """Accept connections. The service has started, and `app.state.service` is it."""
        ...


class Plugin:
    """A plug-in. Each method may be left as it is: this class serves nothing."""

    name: ClassVar[str]
    """The name that errors show."""
    settings: ClassVar[type[PluginSettings] | None] = None
    """The class of its settings, which become flags and variables of `tutti serve`."""

    def routes(self, service: "Service") -> "Sequence[BaseRoute]":
        """The paths that it serves. A path of the service itself comes first."""
        return ()

    def openapi(self) -> Mapping[str, Any]:
        """The description of its paths over HTTP, by path, as `paths` of OpenAPI has it."""
        return {}

    def listeners(self, settings: Settings) -> Sequence[Listener]:
        """The ports that it serves with these settings."""
        return ()

    def commands(self) -> "Sequence[click.Command]":
        """The commands that it adds to `tutti`. A command of the service itself comes first."""
        return ()

    async def prepare(self, settings: Settings) -> None:
        """Prepare what all processes of `tutti serve` share, before any of them starts. On Ray, each gateway does it.

        Raises:
            SettingsError: that is not possible with these settings.
        """

    def accounts(self, service: "Service") -> "AccountService | None":
        """Keys beside those of the settings, what they use, and their jobs, if it has them. The service is not started.

        At most one plug-in has any.
        """
        return None

    def running(self, service: "Service") -> AbstractAsyncContextManager[None]:
        """Start before the service accepts its first client, and stop after its last one has gone.

        Raises:
            SettingsError: that is not possible with these settings. The server does not start.
        """
        return nullcontext()


@cache
def installed_plugins() -> tuple[Plugin, ...]:
    """Load the plug-ins that are installed, once in this process; see `find_plugins`."""
    return find_plugins()


def find_plugins() -> tuple[Plugin, ...]:
    """Load the plug-ins that are installed: those of this repository first, then those of other packages by name.

    Raises:
        SettingsError: one of them cannot be loaded, or has a setting that exists already.
    """
    # Imported here because it takes a tenth of a second, which `tutti --version` does not need.
    from importlib.metadata import entry_points

    found = [_load(name, partial(_plugin_of, name)) for name in OURS if _is_installed(name)]
    found += [_load(each.name, each.load) for each in sorted(entry_points(group=GROUP), key=lambda each: each.name)]
    owners = {each.name: "tutti itself" for each in own_settings()} | RESERVED
    for plugin in found:
        _check_settings(plugin)
        for name in _setting_names(plugin):
            if name in owners:
                raise SettingsError(f"plug-in {plugin.name}: expected a new setting, got {name}, as {owners[name]} has")
            owners[name] = f"the plug-in {plugin.name}"
    return tuple(found)


def plugin_settings() -> tuple[Field[Any], ...]:
    """The settings of all installed plug-ins."""
    return tuple(each for plugin in installed_plugins() if plugin.settings for each in fields(plugin.settings))


def make_settings(values: Mapping[str, Any]) -> Settings:
    """The settings of the service and of its plug-ins from values by name. The default stands for one that is missing.

    Raises:
        SettingsError: a value is out of range, or settings contradict each other.
    """
    rest, of_plugins = dict(values), []
    for plugin in installed_plugins():
        if plugin.settings:
            own = {name: rest.pop(name) for name in _setting_names(plugin) if name in rest}
            of_plugins.append(plugin.settings(**own))
    settings = Settings(**rest, plugins=tuple(of_plugins))
    for each in of_plugins:
        each.check(settings)
    return settings


def check_environment(environment: Mapping[str, str]) -> None:
    """Check that each `TUTTI_…` variable belongs to a setting, so that a misspelled one is not ignored.

    Raises:
        SettingsError: a variable does not.
    """
    known = {each.name for each in own_settings()} | {"api_key"}
    unknown = {name.removeprefix(ENV_PREFIX) for name in environment if name.startswith(ENV_PREFIX)}
    unknown -= {name.upper() for name in known}
    if unknown:
        # Only then are plug-ins looked for: most commands need none.
        known |= {each.name for each in plugin_settings()}
        unknown -= {name.upper() for name in known}
    if unknown:
        advice = {name: what_became_of(name.lower()) or _nearest(name.lower(), known) for name in sorted(unknown)}
        named = ", ".join(ENV_PREFIX + name + advice[name] for name in advice)
        raise SettingsError(f"unknown settings in the environment: {named}")


def _nearest(setting: str, known: Iterable[str]) -> str:
    # Every command imports this module, and hardly one needs this.
    from difflib import get_close_matches

    found = get_close_matches(setting, known, 1)
    return f" (did you mean {ENV_PREFIX}{found[0].upper()}?)" if found else ""


def what_became_of(setting: str) -> str:
    """What to add to an error about an unknown setting: why it was removed, or the plug-in that is missing for it."""
    if setting in REMOVED:
        return f" (removed: {REMOVED[setting]})"
    for name, prefixes in OURS.items():
        if setting.startswith(prefixes) and not _is_installed(name):
            return f" (of the plug-in {name.split('.')[2]}, which is not installed)"
    return ""


def _setting_names(plugin: Plugin) -> list[str]:
    return [each.name for each in fields(plugin.settings)] if plugin.settings else []


def _check_settings(plugin: Plugin) -> None:
    """Check that each setting of a plug-in can become a flag. Raises `SettingsError`."""
    kind: object = plugin.settings
    if kind is None:
        return
    if not (isinstance(kind, type) and issubclass(kind, PluginSettings) and "__dataclass_fields__" in vars(kind)):
        expected = f"a class with @dataclass that derives from {PluginSettings.__qualname__}"
        raise SettingsError(f"plug-in {plugin.name}: expected {expected} as its settings, got {kind!r}")
    for each in fields(kind):
        if each.name != each.name.lower():
            raise SettingsError(f"plug-in {plugin.name}: expected a setting in lower case, got {each.name}")
        if each.type not in SETTING_TYPES:
            expected = f"{', '.join(known.__name__ for known in SETTING_TYPES)} as the type of {each.name}"
            advice = ", as with annotations from __future__" if isinstance(each.type, str) else ""
            raise SettingsError(f"plug-in {plugin.name}: expected {expected}, got {each.type!r}{advice}")
        if not {"help", "choices"} <= each.metadata.keys():
            raise SettingsError(f"plug-in {plugin.name}: expected {each.name} to be made by setting(…)")


def _plugin_of(module: str) -> object:
    return import_module(module).plugin


def _load(name: str, load: Callable[[], object]) -> Plugin:
    try:
        plugin = load()
    except Exception as error:
        raise SettingsError(f"plug-in {name}: cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(plugin, Plugin) or not isinstance(getattr(plugin, "name", None), str):
        expected = f"an object of the class {Plugin.__qualname__}, with a name"
        raise SettingsError(f"plug-in {name}: expected {expected}, got {plugin!r}")
    return plugin


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
