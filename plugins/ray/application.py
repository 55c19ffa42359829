"""Builds the Ray Serve application of tutti, which `deploy/ray/serve.yaml` names.

The arguments are settings of tutti, by their names: they have priority over `TUTTI_…` variables of the process that
builds the application.
"""

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from click import BadParameter
from click.types import convert_type
from ray import serve
from ray.serve import Application, Deployment
from ray.serve.config import RequestRouterConfig

from tutti_server.app.cli.processes import engine_configs
from tutti_server.app.errors import SettingsError
from tutti_server.app.server.plugins import (
    check_environment,
    installed_plugins,
    make_settings,
    plugin_settings,
    what_became_of,
)
from tutti_server.app.service.settings import ENV_PREFIX, Settings, own_settings
from tutti_server.plugins.ray.engine_replica import EngineReplica
from tutti_server.plugins.ray.fleet import FleetReplica
from tutti_server.plugins.ray.gateway_replica import SEVERAL, GatewayReplica
from tutti_server.plugins.ray.request_routers import EngineRouter, GatewayRouter

ENGINES, GATEWAYS, FLEET = "Engines", "Gateways", "Fleet"
"""The names of the deployments, by which the configuration of Serve changes them."""
NOT_HERE = {
    "host": "Serve's http_options",
    "port": "Serve's http_options",
    "tls_cert": "a load balancer before the cluster",
    "tls_key": "a load balancer before the cluster",
    "gateways": f"num_replicas of the deployment {GATEWAYS}",
    "engines": f"num_replicas of the deployment {ENGINES}",
}
"""Settings that a Ray cluster has elsewhere, and where."""
ANY_ADDRESS = "0.0.0.0"
"""An address for the check of the settings: Serve's proxies listen where other machines can reach them."""
MAX_ONGOING = 100_000
"""Calls that a replica may have at the same time. Limits of tutti come first: `max_sessions`, the engine's queue."""
STOP_SLACK_S = 20.0
"""How long a gateway may take to end in addition to its drain, in seconds."""
WINDOWS_S = 30.0
"""How long an engine that Serve stops may take for the windows that it has, in seconds."""
FAST_PATH = {
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1000",
}
"""Variables of the replicas' processes. Without them each call changes threads several times."""


def build(arguments: Mapping[str, Any]) -> Application:
    """Build the application of these settings.

    Args:
        arguments: settings by their names, such as `model` or `max_sessions`.

    Raises:
        SettingsError: there is no such setting, a value is not valid, or a cluster has it elsewhere.
    """
    return bind(read_settings(arguments, os.environ))


def bind(settings: Settings, engine_options: Mapping[str, Any] = {}, **options: Any) -> Application:
    """The application of these settings.

    Args:
        engine_options: options of the engines' deployment in place of some of `options`.
        options: options of the gateways' and the engines' deployment, such as `num_replicas`; see
            `ray.serve.deployment`.
    """
    # Without API keys every request is allowed: then the key only has to be the same in all gateways.
    key = hashlib.sha256(repr(settings).encode()).hexdigest()
    drain_s = settings.drain_timeout_s + STOP_SLACK_S
    gateways = _deployment(GatewayReplica, GATEWAYS, 0.5, drain_s, router=GatewayRouter, **options)
    engines = _deployment(EngineReplica, ENGINES, 1.0, WINDOWS_S, router=EngineRouter, **{**options, **engine_options})
    # Where gateways learn of each other. It has hardly any work.
    fleet = _deployment(FleetReplica, FLEET, 0, 1.0, num_replicas=1)
    return gateways.bind(settings, key, engines.bind(settings), fleet.bind())


def _deployment(
    replica: type, name: str, n_cpus: float, stop_timeout_s: float, router: type | None = None, **options: Any
) -> Deployment:
    deployment: Deployment = serve.deployment(replica)
    if router is not None:
        options["request_router_config"] = RequestRouterConfig(request_router_class=router)
    return deployment.options(
        name=name,
        max_ongoing_requests=MAX_ONGOING,
        ray_actor_options={"num_cpus": n_cpus, "runtime_env": {"env_vars": FAST_PATH}},
        graceful_shutdown_timeout_s=stop_timeout_s,
        **options,
    )


def read_settings(arguments: Mapping[str, Any], environment: Mapping[str, str]) -> Settings:
    """The settings of a cluster: arguments first, then `TUTTI_…` variables, then defaults.

    Raises:
        SettingsError: as `build` does.
    """
    check_environment(environment)
    types = {each.name: each.type for each in (*own_settings(), *plugin_settings())}
    if unknown := sorted(arguments.keys() - types.keys()):
        named = ", ".join(name + what_became_of(name) for name in unknown)
        raise SettingsError(f"expected arguments that are settings of tutti, got {named}")
    # To the command line, a variable without a value is not set.
    names = [name for name in types if environment.get(ENV_PREFIX + name.upper())]
    values = {name: _parse(name, types[name], environment[ENV_PREFIX + name.upper()]) for name in names}
    values |= {name: _check(name, types[name], value) for name, value in arguments.items()}
    if elsewhere := sorted(values.keys() & NOT_HERE.keys()):
        raise SettingsError(f"{elsewhere[0]}: expected nothing, as {NOT_HERE[elsewhere[0]]} says it in a Ray cluster")
    settings = make_settings({"host": ANY_ADDRESS, **values})
    settings.check_key_limits(SEVERAL, settings.named_keys)
    if len(settings.models) > 1:
        expected = "expected one in a Ray cluster, as only a server of one process loads several"
        raise SettingsError(f"model: {expected}, got {settings.model}")
    # Else engines would fail one after another, and the reason would be in their logs alone.
    engine_configs(settings)
    for plugin in installed_plugins():
        if plugin.listeners(settings):
            expected = "expected no ports beside that of HTTP, as Serve has none in a Ray cluster"
            raise SettingsError(f"plug-in {plugin.name}: {expected}")
    return settings


def _parse(name: str, type: Any, text: str) -> Any:
    """The value of a variable, read as the command line reads it."""
    try:
        return convert_type(type).convert(text, None, None)
    except BadParameter as error:
        raise SettingsError(f"{name}: expected {type.__name__}, got {text!r}") from error


def _check(name: str, type: Any, value: Any) -> Any:
    """The value of an argument, which YAML gives as a number, a truth value or text."""
    if type is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, type) or (type is int and isinstance(value, bool)):
        raise SettingsError(f"{name}: expected {type.__name__}, got {value!r}")
    return value
