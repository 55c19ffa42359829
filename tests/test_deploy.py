"""Container files, monitoring and the operator's page agree with the code and with each other. Docker is not needed."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes import FakeTranscriber
from tutti_server.app.cli.processes import STOP_SLACK_S
from tutti_server.app.publish.call_subscribers import LEAVE_S
from tutti_server.app.publish.webhook import DRAIN_TIMEOUT_S
from tutti_server.app.server.main import SHUTDOWN_TIMEOUT_S
from tutti_server.app.server.plugins import check_environment, make_settings, plugin_settings
from tutti_server.app.server.routes import routes
from tutti_server.app.service.admission import ABANDON_S, Admission
from tutti_server.app.service.metrics import Metrics
from tutti_server.app.service.settings import ENV_PREFIX, Settings, own_settings
from tutti_server.app.service.shared_state import AdmissionCounter
from tutti_server.engine.api import EngineStats, GpuStats
from tutti_server.engine.engine_stats import add_up
from tutti_server.plugins.accounts.database.address import state_folder
from tutti_server.plugins.accounts.jobs.job_metrics import JobMetrics
from tutti_server.plugins.accounts.keys.key_metrics import KeyMetrics
from tutti_server.plugins.telemetry.open_telemetry import CLOSE_TIMEOUT_S

REPOSITORY = Path(__file__).parents[1]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
PROMETHEUS = yaml.safe_load((REPOSITORY / "deploy/prometheus/prometheus.yml").read_text())
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text())
    for path in sorted((REPOSITORY / "deploy/grafana/dashboards").glob("*.json"))
}
NGINX = (REPOSITORY / "deploy/nginx/tutti.conf").read_text()
UNIT = (REPOSITORY / "deploy/systemd/tutti.service").read_text()
OPERATIONS = "".join((REPOSITORY / f"docs/{page}.md").read_text() for page in ("settings", "operations", "access"))
MONITORING = (REPOSITORY / "docs/monitoring.md").read_text()
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
TARGET_LABELS = {"job", "instance", "pod"}
"""Labels that Prometheus gives to all series of a server."""
DCGM_LABELS = {
    name: {"Hostname", "UUID", "device", "gpu", "modelName"} for name in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED")
}
"""Labels of the series of NVIDIA's dcgm-exporter that we show."""
GRAFANA_VARIABLES = {"__rate_interval"}
"""Variables that every dashboard has."""
SHUTDOWN_S = SHUTDOWN_TIMEOUT_S + DRAIN_TIMEOUT_S + CLOSE_TIMEOUT_S
"""How long a server may take after its sessions have ended, in seconds: for open requests, the webhook and traces."""


def instructions() -> Iterator[tuple[str, str]]:
    """The Dockerfile's instructions and their arguments."""
    for line in re.sub(r"\\\n", " ", DOCKERFILE).splitlines():
        if line and not line.startswith("#"):
            name, _, arguments = line.strip().partition(" ")
            yield name, arguments.strip()


def arguments_of(name: str) -> list[str]:
    return [arguments for each, arguments in instructions() if each == name]


def interpolate(value: object, environment: dict[str, str]) -> str:
    """Compose's `${NAME}`, `${NAME:-default}` and `${NAME:?message}`; a message raises `KeyError`."""

    def replace(match: re.Match[str]) -> str:
        name, operator, rest = match.groups()
        if environment.get(name):
            return environment[name]
        if operator == ":-":
            return rest
        raise KeyError(name)

    return re.sub(r"\$\{(\w+)(?:(:-|:\?)([^}]*))?\}", replace, str(value))


def our_environment(name: str, environment: dict[str, str]) -> dict[str, str]:
    return {key: interpolate(value, environment) for key, value in SERVICES[name]["environment"].items()}


def seconds(duration: str) -> int:
    """A duration of Compose, or of a load balancer."""
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", duration)
    assert match and duration, duration
    hours, minutes, rest = (int(each or 0) for each in match.groups())
    return 3600 * hours + 60 * minutes + rest


def settings_of(environment: dict[str, str]) -> Settings:
    """The settings of a service with these variables, all of which it knows."""
    check_environment(environment)
    known: dict[str, Any] = {
        each.name: each.type(environment[variable])  # type: ignore[operator]  # the types of fields are classes here
        for each in (*own_settings(), *plugin_settings())
        if (variable := ENV_PREFIX + each.name.upper()) in environment
    }
    return make_settings(known)


def paths() -> set[str]:
    """The paths of all routes."""
    return {getattr(route, "path", "") for route in routes()}


# Compose.


@pytest.mark.parametrize("name", OURS)
def test_settings_in_compose_are_settings(name: str) -> None:
    """The service starts with them, on an address that other machines can reach."""
    settings = settings_of(our_environment(name, {"TUTTI_API_KEYS": "k1,k2"}))
    assert settings.host == "0.0.0.0"
    assert settings.unnamed_keys == {"k1", "k2"}


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("environment", [{}, {"TUTTI_API_KEYS": ""}])
def test_compose_starts_nothing_without_keys(name: str, environment: dict[str, str]) -> None:
    with pytest.raises(KeyError, match="TUTTI_API_KEYS"):
        our_environment(name, environment)


@pytest.mark.parametrize("name", OURS)
def test_a_stopped_container_has_time_to_drain(name: str) -> None:
    """Docker kills the container only after all time limits of the service."""
    assert seconds(SERVICES[name]["stop_grace_period"]) > Settings().drain_timeout_s + STOP_SLACK_S


def test_a_gateway_has_time_to_end() -> None:
    """The supervisor kills it only after all time limits of its end: else the last events and spans would be lost."""
    assert STOP_SLACK_S > ABANDON_S + 2 * LEAVE_S + SHUTDOWN_S


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_confined(name: str) -> None:
    """It gets no rights of the host, cannot use up its memory and processes, and starts again after a crash.

    Who monitors it is reached from this machine only.
    """
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    if name in ("prometheus", "grafana"):
        assert service["ports"] and all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["pids_limit"] <= 1024
    assert re.fullmatch(r"\d+g", interpolate(service["mem_limit"], {}))
    assert "privileged" not in service
    assert "cap_add" not in service


@pytest.mark.parametrize("name", OURS)
def test_only_the_cache_the_database_and_uploads_can_be_written(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root is read-only; the uploads that are accepted at the same time fit into the temporary folder."""
    service = SERVICES[name]
    assert service["read_only"] is True
    (folder,) = service["tmpfs"]
    match = re.fullmatch(r"/tmp:size=(\d+)g,mode=1777", folder)
    assert match
    environment = our_environment(name, {"TUTTI_API_KEYS": "k"})
    uploads_mb = int(environment["TUTTI_MAX_UPLOADS"]) * int(environment["TUTTI_MAX_UPLOAD_MB"])
    assert uploads_mb <= 1000 * int(match[1])
    caches = {value for line in arguments_of("ENV") for value in shlex.split(line) if "_CACHE_DIR=/" in value}
    cache, state = (volume.split(":")[1] for volume in service["volumes"])
    assert all(value.split("=")[1].startswith(cache) for value in caches)
    monkeypatch.setenv("HOME", "/home/tutti")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert state_folder().parent == Path(state)


# Dockerfile.


def test_the_lock_has_hashes_of_all_versions_and_no_host() -> None:
    """`make lock` writes both files. Torch is in neither, as the Makefile chooses it."""
    lock = (REPOSITORY / "constraints.lock").read_text()
    locked = re.findall(r"^(\S+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", lock, re.MULTILINE)
    versions = [line.split("==") for line in (REPOSITORY / "constraints.txt").read_text().split()]
    assert dict(locked) == {re.sub("[-_.]+", "-", name.lower()): version for name, version in versions}
    assert not {"torch", "triton"} & dict(locked).keys() and "//" not in lock and "--index" not in lock


def test_the_image_copies_what_exists() -> None:
    """Each source of a COPY exists, and `.dockerignore` does not exclude it."""
    let_in = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {source for arguments in arguments_of("COPY") for source in shlex.split(arguments)[:-1]}
    assert copied == let_in
    assert [source for source in sorted(copied) if not (REPOSITORY / source).exists()] == []


def test_the_image_has_the_torch_of_the_makefile() -> None:
    wanted = re.search(r"^TORCH \?= (.+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert wanted
    assert f"TORCH={wanted[1]}" in arguments_of("ARG")


def test_the_container_runs_without_rights() -> None:
    (user,) = arguments_of("USER")
    assert user not in ("root", "0")
    for folder in {volume.split(":")[1] for name in OURS for volume in SERVICES[name]["volumes"]}:
        assert re.search(rf"--owner={user} .*{re.escape(folder)}(\s|$)", DOCKERFILE), "the volume would belong to root"


def test_health_checks_ask_a_route_on_the_ports_that_are_served() -> None:
    """The health checks of the image and of Compose request `/readyz` on the published port."""
    command = arguments_of("HEALTHCHECK")[0].partition(" CMD ")[2]
    checks = [json.loads(command), *(SERVICES[name]["healthcheck"]["test"][1:] for name in OURS)]
    ((port, path),) = {asked for check in checks for asked in re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", check[-1])}
    assert path == "/readyz"
    assert path in paths()
    assert arguments_of("EXPOSE") == [port]
    assert {published for name in OURS for published in SERVICES[name]["ports"]} == {f"{port}:{port}"}
    for check in checks:
        compile(check[-1], "healthcheck", "exec")
        assert check[:2] == ["python", "-c"]


def test_settings_in_the_image_are_settings() -> None:
    environment = dict(pair.split("=", 1) for line in arguments_of("ENV") for pair in shlex.split(line))
    ours = {name: value for name, value in environment.items() if name.startswith(ENV_PREFIX)}
    check_environment(ours)
    assert [ours[ENV_PREFIX + "PORT"]] == arguments_of("EXPOSE")


# Monitoring.


class SeveralEngines(FakeTranscriber):
    """Its series have the label of engines, each of which has a GPU."""

    def stats(self) -> EngineStats:
        gpu = GpuStats(
            memory_total_bytes=4,
            memory_reserved_bytes=2,
            memory_used_bytes=3,
            utilization=0.5,
            power_w=100.0,
            temperature_c=50.0,
        )
        own = replace(super().stats(), gpu=gpu)
        return add_up({"engine-0": own, "engine-1": own})


def service_metrics() -> Metrics:
    """The metrics of a service as it starts, with those of the accounts."""
    metrics = Metrics(SeveralEngines())
    Admission(Settings(), metrics, AdmissionCounter(), FakeTranscriber())
    KeyMetrics(metrics.registry)
    JobMetrics(metrics.registry)
    return metrics


def metric_labels() -> dict[str, set[str]]:
    """The labels of every series that the service renders, by its name."""
    metrics = service_metrics()
    # A series with labels exists after its first value.
    metrics.refused_total.labels(reason="overloaded")
    metrics.closed_total.labels(code="1000")
    metrics.events_total.labels(type="interim")
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for suffix in SUFFIXES[family.type]:
            name = family.name + suffix
            labels[name] = {label for sample in family.samples if sample.name == name for label in sample.labels}
    return labels


def expressions() -> Iterator[str]:
    """All PromQL expressions of the dashboards and the alerts."""
    for dashboard in DASHBOARDS.values():
        for panel in dashboard["panels"]:
            yield from (target["expr"] for target in panel["targets"])
    for file in PROMETHEUS["rule_files"]:
        rules = yaml.safe_load((REPOSITORY / "deploy/prometheus" / file).read_text())
        yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])


def test_queries_name_metrics_that_exist() -> None:
    """A renamed metric or label would leave a panel empty and an alert silent.

    A series that only grows is shown as a rate; a gauge is shown as it is.
    """
    labels = metric_labels() | DCGM_LABELS
    for expression in expressions():
        names = re.findall(r"\b(?:tutti|DCGM)_\w+", expression)
        assert [name for name in names if name not in labels] == []
        used = set(re.findall(r"\w+(?=(?:=|!=|=~|!~)\")", expression))
        for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
            used |= {label.strip() for label in grouped.split(",")}
        known = {label for name in names for label in labels[name]}
        assert used <= known | TARGET_LABELS, expression
        for name, window in re.findall(r"\b(tutti_\w+)(?:\{[^}]*\})?(\[)?", expression):
            grows = name.endswith(("_total", "_bucket", "_sum", "_count"))
            assert grows == bool(window), expression


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_valid_for_grafana(name: str) -> None:
    """Panels have unique ids, and query the data source that is provisioned."""
    (source,) = yaml.safe_load((REPOSITORY / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    dashboard = DASHBOARDS[name]
    assert [each["uid"] for each in DASHBOARDS.values()].count(dashboard["uid"]) == 1
    panels, variables = dashboard["panels"], dashboard["templating"]["list"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    asked = [each["datasource"] for each in (*panels, *variables)]
    assert all(each == {"type": source["type"], "uid": source["uid"]} for each in asked)
    used = {each for panel in panels for target in panel["targets"] for each in re.findall(r"\$(\w+)", target["expr"])}
    assert used <= {variable["name"] for variable in variables} | GRAFANA_VARIABLES
    for variable in variables:
        assert re.findall(r"\btutti_\w+", variable["query"]["query"])[0] in metric_labels()


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    """The provisioning files have the addresses and folders of Compose."""
    provisioning = REPOSITORY / "deploy/grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    port = SERVICES["prometheus"]["ports"][0].split(":")[-1]
    assert source["url"] == f"http://prometheus:{port}"
    assert source["jsonData"]["timeInterval"] == PROMETHEUS["global"]["scrape_interval"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/tutti.yml").read_text())["providers"]
    path = provider["options"]["path"]
    assert f"./deploy/grafana/dashboards:{path}:ro" in SERVICES["grafana"]["volumes"]
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{path}/tutti.json"


def test_prometheus_finds_the_service() -> None:
    """It scrapes a name that both of our services have, on their port, at the path of the metrics."""
    (scrape,) = PROMETHEUS["scrape_configs"]
    (discovery,) = scrape["dns_sd_configs"]
    (name,) = discovery["names"]
    aliases = SERVICES["tutti-gpu"]["networks"]["default"]["aliases"]
    assert name in OURS and name in aliases
    assert [str(discovery["port"])] == arguments_of("EXPOSE")
    assert scrape.get("metrics_path", "/metrics") in paths()
    assert "./deploy/prometheus:/etc/prometheus:ro" in SERVICES["prometheus"]["volumes"]


# The reverse proxy; tests/test_load_balancers.py runs it.


def directives(name: str) -> list[str]:
    """The values of all nginx directives with this name."""
    text = re.sub(r"#.*", "", NGINX)
    return [" ".join(value.split()) for value in re.findall(rf"(?:^|[\s{{;]){name}\s+([^;{{]+)[;{{]", text)]


def test_the_proxy_does_not_buffer() -> None:
    """Events and uploads pass at once, and its limits of time and size are above those of the service."""
    assert directives("proxy_buffering") == directives("proxy_request_buffering") == ["off"]
    for name in ("proxy_read_timeout", "proxy_send_timeout"):
        (value,) = directives(name)
        assert value.endswith("h") and int(value[:-1]) * 3600 > Settings().idle_timeout_s
    (size,) = directives("client_max_body_size")
    assert size.endswith("m") and int(size[:-1]) << 20 > Settings().max_upload_mb * 1_000_000


# The operator's page.


def test_the_operators_pages_mention_no_other_setting() -> None:
    mentioned = set(re.findall(r"\bTUTTI_\w+", OPERATIONS))
    check_environment(dict.fromkeys(mentioned, ""))


def test_the_operators_page_lists_every_metric() -> None:
    """The page has the name and the type of each metric, those of plug-ins last."""
    families = text_string_to_metric_families(service_metrics().render().decode())
    expected = [(family.name + ("_total" if family.type == "counter" else ""), family.type) for family in families]
    assert re.findall(r"^\| `((?:tutti|process)_\w+)` \| (\w+) \|", MONITORING, re.MULTILINE) == expected


def unit_values(name: str) -> list[str]:
    """The values of a key of the unit of systemd."""
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


def test_the_unit_of_systemd_lets_a_server_drain() -> None:
    """It waits for longer than the server, and gives settings that there are."""
    (stop_s,) = map(float, unit_values("TimeoutStopSec"))
    assert stop_s > Settings().drain_timeout_s + max(STOP_SLACK_S, ABANDON_S + SHUTDOWN_S)
    (environment,) = unit_values("Environment")
    values = dict(pair.split("=", 1) for pair in shlex.split(environment))
    check_environment({name: value for name, value in values.items() if name.startswith(ENV_PREFIX)})


def test_systemd_finds_no_mistake_in_the_unit(tmp_path: Path) -> None:
    """The program itself is not installed here, so another one takes its place."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    (command,) = unit_values("ExecStart")
    unit = tmp_path / "tutti.service"
    unit.write_text(UNIT.replace(command, f"{sys.executable} serve"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
