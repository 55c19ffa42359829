"""The Helm chart follows its own schema and those of Kubernetes, and makes the pods of the plain manifests."""

import json
import shutil
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.test_kubernetes import VERSIONS, manifest, pod
from tutti_server.app.cli.processes import STOP_SLACK_S
from tutti_server.app.server.plugins import check_environment
from tutti_server.app.version import VERSION

CHART = Path(__file__).parents[1] / "deploy/helm/tutti"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
FORMS: dict[str, list[str]] = {"service-cpu": [], "service": ["--values", str(CHART / "values-gpu.yaml")]}
"""The options of Helm that make the chart like each folder of manifests."""
needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm")


def values(name: str = "values.yaml") -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / name).read_text())
    return found


def helm(*arguments: str) -> str:
    done = subprocess.run(["helm", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def rendered(*options: str) -> dict[str, dict[str, Any]]:
    """What the chart installs under the name `tutti`, by kind."""
    content = helm("template", "tutti", str(CHART), *options)
    return {each["kind"]: each for each in yaml.safe_load_all(content) if each}


@pytest.mark.parametrize("name", ["values.yaml", "values-gpu.yaml"])
def test_values_follow_the_schema_and_are_settings(name: str) -> None:
    jsonschema.validate(values(name), SCHEMA)
    check_environment(values(name)["settings"])


@pytest.mark.parametrize(
    "change",
    [
        {"replica": 2},
        {"replicas": 0},
        {"drainTimeoutS": 0},
        {"existingSecret": ""},
        {"settings": {"TUTTI_API_KEYS": "k1"}},
        {"settings": {"TUTTI_DRAIN_TIMEOUT_S": "60"}},
        {"settings": {"TUTTI_MAX_SESSIONS": 8}},
        {"ingress": {"enabled": True, "host": ""}, "settings": {"TUTTI_METRICS_NEED_KEY": "true"}},
        {"service": {"type": "LoadBalanced"}},
    ],
)
def test_values_that_would_not_do_what_they_say_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**values(), **change}, SCHEMA)


def test_an_ingress_opens_the_metrics_only_where_that_is_said() -> None:
    """No Ingress can leave out a path, and Prometheus scrapes the pods."""
    ingress = {"enabled": True, "host": "a.example"}
    with pytest.raises(jsonschema.ValidationError, match="'TUTTI_METRICS_NEED_KEY' is a required property"):
        jsonschema.validate({**values(), "ingress": ingress}, SCHEMA)
    jsonschema.validate({**values(), "ingress": ingress, "settings": {"TUTTI_METRICS_NEED_KEY": "true"}}, SCHEMA)


def test_the_chart_has_the_version_of_the_service() -> None:
    chart = values("Chart.yaml")
    assert chart["version"] == chart["appVersion"] == VERSION


@needs_helm
@pytest.mark.parametrize("form", FORMS)
def test_the_chart_makes_the_pods_of_the_manifests(form: str) -> None:
    """But for names and labels, and a spread that counts those."""
    installed = rendered(*FORMS[form])
    spec, expected = installed["Deployment"]["spec"]["template"]["spec"], deepcopy(pod(form))
    for each in (spec, expected):
        del each["topologySpreadConstraints"][0]["labelSelector"]
    assert spec["containers"][0].pop("imagePullPolicy") == "IfNotPresent"
    assert spec == expected
    settings = manifest("ConfigMap", form)["data"]
    assert installed["ConfigMap"]["data"] == settings
    assert installed["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


@needs_helm
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", FORMS)
def test_what_the_chart_installs_follows_the_schemas(form: str, version: str) -> None:
    ingress = ["--set", "ingress.enabled=true,ingress.host=a.example,ingress.className=nginx,ingress.tlsSecret=tls"]
    ingress += ["--set-string", "settings.TUTTI_METRICS_NEED_KEY=true"]
    helm("lint", "--strict", str(CHART), *FORMS[form], *ingress)
    installed = rendered(*FORMS[form], *ingress)
    assert installed.keys() == {"ConfigMap", "Deployment", "Ingress", "PodDisruptionBudget", "Service"}
    for each in installed.values():
        kubernetes_validate.validate(each, version, strict=True)


@needs_helm
def test_the_grace_period_grows_with_the_drain() -> None:
    installed = rendered("--set", "drainTimeoutS=300,preStopS=15")
    spec = installed["Deployment"]["spec"]["template"]["spec"]
    assert installed["ConfigMap"]["data"]["TUTTI_DRAIN_TIMEOUT_S"] == "300"
    assert spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "15"]
    assert spec["terminationGracePeriodSeconds"] == 345 > 15 + 300 + STOP_SLACK_S
