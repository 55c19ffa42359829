"""The settings of a Ray cluster, and the files that start one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.plugins.ray.conftest import require_ray
from tutti_server.app.errors import SettingsError
from tutti_server.app.server.plugins import Plugin
from tutti_server.app.service.settings import Settings

require_ray()

from tutti_server.plugins.ray import gateway_replica  # noqa: E402
from tutti_server.plugins.ray.application import ENGINES, GATEWAYS, read_settings  # noqa: E402
from tutti_server.plugins.ray.gateway_replica import GatewayReplica  # noqa: E402

SERVE_YAML = Path(__file__).parents[3] / "deploy/ray/serve.yaml"


def test_arguments_come_before_variables_and_those_before_defaults() -> None:
    """The settings are those of `tutti serve`, to which an empty variable is none."""
    variables = {"TUTTI_MAX_SESSIONS": "7", "TUTTI_API_KEYS": "k1,k2", "TUTTI_METRICS_NEED_KEY": "true", "HOME": "/"}
    variables |= {"TUTTI_SLOTS": "", "TUTTI_LOG_LEVEL": "", "TUTTI_PORT": ""}
    settings = read_settings({"max_sessions": 9, "drain_timeout_s": 5}, variables)
    assert (settings.max_sessions, settings.drain_timeout_s, settings.metrics_need_key) == (9, 5.0, True)
    assert settings.unnamed_keys == {"k1", "k2"}


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        ({"max_session": 3}, {}, "expected arguments that are settings of tutti, got max_session"),
        ({"max_sessions": "3"}, {}, "max_sessions: expected int, got '3'"),
        ({"max_sessions": True}, {}, "max_sessions: expected int, got True"),
        ({}, {"TUTTI_MAX_SESSION": "3"}, "unknown settings in the environment: TUTTI_MAX_SESSION"),
        ({}, {"TUTTI_MAX_SESSIONS": "many"}, "max_sessions: expected int, got 'many'"),
        ({"port": 80}, {}, "port: expected nothing, as Serve's http_options says it in a Ray cluster"),
        ({}, {"TUTTI_GATEWAYS": "2"}, "gateways: expected nothing, as num_replicas of the deployment Gateways"),
        ({"audiosocket_port": 9092}, {}, "plug-in carriers: expected no ports beside that of HTTP, as Serve has none"),
        ({"allow_anyone": False}, {}, "no API keys are set"),
        ({"dtype": "float8"}, {}, "dtype: expected one of auto, float32, bfloat16, float16, int8, got 'float8'"),
        ({"send_timeout_s": 5.0}, {}, "send_timeout_s (removed: it is always 10 s)"),
    ],
)
def test_mistakes_are_refused(arguments: dict[str, Any], variables: dict[str, str], message: str) -> None:
    """A wrong name or value stops the deployment, with what was expected."""
    with pytest.raises(SettingsError) as error:
        read_settings({"allow_anyone": True, **arguments}, variables)
    assert message in str(error.value)


async def test_a_gateway_that_plugins_cannot_be_prepared_for_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It learns at once of a spool that cannot be written, or of a sealing key that is missing."""

    class Unprepared(Plugin):
        name = "unprepared"

        async def prepare(self, settings: Settings) -> None:
            raise SettingsError("job_spool: expected to write")

    monkeypatch.setattr(gateway_replica, "installed_plugins", lambda: (Unprepared(),))
    # Only Serve can make one.
    gateway: Any = SimpleNamespace(_settings=Settings())
    with pytest.raises(SettingsError, match="job_spool: expected to write"):
        await GatewayReplica.__serve_build_asgi_app__(gateway)


def test_the_file_for_serve_deploys_this_application() -> None:
    """Its import path, its arguments and its deployments exist, and Serve understands its options."""
    from ray.serve.schema import ServeDeploySchema

    (application,) = ServeDeploySchema.model_validate(yaml.safe_load(SERVE_YAML.read_text())).applications
    assert application.import_path == "tutti_server.plugins.ray.application:build"
    read_settings(application.args, {"TUTTI_API_KEYS": "k"})
    assert {each.name for each in application.deployments} == {ENGINES, GATEWAYS}
