"""The manifests for Kubernetes follow its schemas, and agree with the code, the image and each other."""

import re
import shlex
import shutil
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.kustomize import FILE, Manifest, build
from tests.test_deploy import DOCKERFILE, REPOSITORY, SERVICES, paths, service_metrics, settings_of
from tutti_server.app.cli.processes import STOP_SLACK_S
from tutti_server.app.service.settings import Settings
from tutti_server.cluster.local.shared_audio import BLOCK_BYTES
from tutti_server.cluster.local.supervisor import POOL_BLOCKS

FOLDER = REPOSITORY / "deploy/kubernetes"
FORMS = {"service": "tutti-gpu", "service-cpu": "tutti"}
"""The folders that are applied as they are, and the service of Compose that each one is like."""
MANIFESTS = {form: build(FOLDER / form) for form in (*FORMS, "redis", "ray")}
VERSIONS = ("1.29", kubernetes_validate.latest_version())
"""The oldest version of Kubernetes that the manifests are made for, and the newest one that the validator knows."""
RAY_FIELDS = {
    "service": {"excludeHeadPodFromServeSvc", "serveConfigV2", "rayClusterConfig"},
    "cluster": {
        "rayVersion",
        "enableInTreeAutoscaling",
        "autoscalerOptions",
        "gcsFaultToleranceOptions",
        "headGroupSpec",
        "workerGroupSpecs",
    },
    "autoscaler": {"idleTimeoutSeconds", "resources", "securityContext"},
    "storage": {"redisAddress", "redisPassword"},
    "head": {"rayStartParams", "template"},
    "workers": {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"},
}
"""The fields of KubeRay's resources that we use, by its reference of the API. Its schema is in no package."""
SAFE_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
"""The volumes that the Pod Security Standard "restricted" allows."""
UNITS = {"": 1, "m": 1e-3, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def manifest(kind: str, form: str = "service") -> Manifest:
    """The one manifest of this kind."""
    (found,) = (each for each in MANIFESTS[form] if each["kind"] == kind)
    return found


def pod(form: str = "service") -> dict[str, Any]:
    """The specification of the service's pods."""
    spec: dict[str, Any] = manifest("Deployment", form)["spec"]["template"]["spec"]
    return spec


def container(form: str = "service") -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = pod(form)["containers"]
    return found


def ray_templates() -> list[dict[str, Any]]:
    """The pods of the Ray cluster: the head's first."""
    cluster = manifest("RayService", "ray")["spec"]["rayClusterConfig"]
    return [cluster["headGroupSpec"]["template"], *(each["template"] for each in cluster["workerGroupSpecs"])]


def pods() -> dict[str, dict[str, Any]]:
    """The specifications of all pods, by what they are."""
    return {
        **{form: pod(form) for form in FORMS},
        "redis": manifest("StatefulSet", "redis")["spec"]["template"]["spec"],
        **{f"ray-{number}": template["spec"] for number, template in enumerate(ray_templates())},
    }


def custom(path: str) -> Manifest:
    """A manifest, or values of a chart, that Kubernetes itself does not know."""
    found: Manifest = yaml.safe_load((FOLDER / path).read_text())
    return found


def quantity(text: str) -> float:
    """A quantity of Kubernetes as a number."""
    match = re.fullmatch(r"(\d+)(m|[KMG]i|)", text)
    assert match, text
    return int(match[1]) * UNITS[match[2]]


def settings(form: str) -> Settings:
    """The settings of the pods, with a key."""
    return settings_of({**manifest("ConfigMap", form)["data"], "TUTTI_API_KEYS": "k1,k2"})


# The schemas.


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", MANIFESTS)
def test_manifests_follow_the_schemas(form: str, version: str) -> None:
    """Strictly: a field that Kubernetes does not know is an error, too."""
    for each in MANIFESTS[form]:
        if each["kind"] == "RayService":
            for template in ray_templates():
                kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", **template}, version, strict=True)
        else:
            kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("form", MANIFESTS)
def test_kubectl_builds_the_same(form: str) -> None:
    """The real program needs no cluster for that."""
    if (kubectl := shutil.which("kubectl")) is None:
        pytest.skip("kubectl is not installed: see https://kubernetes.io/docs/tasks/tools/")
    output = subprocess.run([kubectl, "kustomize", FOLDER / form], capture_output=True, check=True, timeout=60).stdout
    built, expected = (
        {(each["kind"], each["metadata"]["name"]): each for each in manifests}
        for manifests in (yaml.safe_load_all(output), MANIFESTS[form])
    )
    assert built == expected


def test_every_file_of_a_form_is_applied() -> None:
    """A manifest that the kustomization does not list would be forgotten."""
    for form in MANIFESTS:
        listed = yaml.safe_load((FOLDER / form / FILE).read_text())["resources"]
        assert {path.name for path in (FOLDER / form).iterdir()} - {FILE} == {
            name for name in listed if "/" not in name
        }


def test_all_parts_belong_together() -> None:
    """They have one namespace, and select the pods by the labels that these have."""
    deployment = manifest("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert manifest("Service")["spec"]["selector"] == labels
    assert manifest("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert manifest("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    assert pod()["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == labels
    monitor = custom("monitoring/podmonitor.yaml")
    assert monitor["spec"]["selector"]["matchLabels"] == labels
    target = manifest("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])
    namespaces = {each["metadata"]["namespace"] for each in MANIFESTS["service"] if each["kind"] != "Namespace"}
    assert namespaces == {manifest("Namespace")["metadata"]["name"], monitor["metadata"]["namespace"]}


# Image and settings.


@pytest.mark.parametrize("form", FORMS)
def test_settings_are_settings(form: str) -> None:
    """The service starts with them, reachable from outside of the pod, with the keys of the secret."""
    known = settings(form)
    assert known.host == "0.0.0.0"
    assert known.device == ("cuda" if "nvidia.com/gpu" in container(form)["resources"]["limits"] else "cpu")
    sources = [source for each in container(form)["envFrom"] for source in each.items()]
    assert sources == [
        ("configMapRef", {"name": manifest("ConfigMap", form)["metadata"]["name"]}),
        ("secretRef", {"name": "tutti-keys"}),
    ]


# The life of a pod.


def test_probes_ask_routes_on_the_port_that_is_served() -> None:
    """Probes, Service and PodMonitor name the container's port, which is the one of the settings and of the image."""
    (port,) = container()["ports"]
    assert port["containerPort"] == settings("service").port
    assert f"EXPOSE {port['containerPort']}\n" in DOCKERFILE
    probes = {name: container()[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert [probe["path"] for probe in probes.values()] == ["/healthz", "/healthz", "/readyz"]
    (served,) = manifest("Service")["spec"]["ports"]
    assert (served["port"], served["targetPort"]) == (port["containerPort"], port["name"])
    (endpoint,) = custom("monitoring/podmonitor.yaml")["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == port["name"]
    assert {endpoint["path"], *(probe["path"] for probe in probes.values())} <= paths()


@pytest.mark.parametrize("form", FORMS)
def test_a_pod_drains_before_it_is_killed(form: str) -> None:
    """The grace period holds the pause before the drain, the drain, and what the service does after it."""
    command, pause_s = container(form)["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    drain_s = settings(form).drain_timeout_s + STOP_SLACK_S
    assert pod(form)["terminationGracePeriodSeconds"] > int(pause_s) + drain_s
    # By then the readiness probe would have noticed as well.
    probe = container(form)["readinessProbe"]
    assert int(pause_s) >= probe["periodSeconds"] * probe["failureThreshold"]


def test_the_autoscaler_follows_a_metric_of_the_service() -> None:
    """The adapter finds it under the same name; it is a gauge without labels, so that pods have one value each."""
    spec = manifest("HorizontalPodAutoscaler")["spec"]
    (metric,) = spec["metrics"]
    name, target = metric["pods"]["metric"]["name"], metric["pods"]["target"]
    assert metric["type"] == "Pods" and target["type"] == "AverageValue"
    assert 0.5 <= quantity(target["averageValue"]) < 1
    families = text_string_to_metric_families(service_metrics().render().decode())
    (family,) = (family for family in families if family.name == name)
    assert family.type == "gauge"
    assert [sample.labels for sample in family.samples] == [{}]
    (rule,) = custom("monitoring/prometheus-adapter.yaml")["rules"]["custom"]
    assert rule["seriesQuery"].startswith(name + "{")
    assert set(rule["resources"]["overrides"]) == {"namespace", "pod"}


# Rights.


@pytest.mark.parametrize("name", pods())
def test_pods_are_restricted(name: str) -> None:
    """They fulfil the Pod Security Standard that their namespace enforces, and have a read-only root besides."""
    spec = pods()[name]
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
    # A Service called tutti would add the variable TUTTI_PORT=tcp://…
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (only,) = spec["containers"]
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {key for volume in spec.get("volumes", ()) for key in volume if key != "name"} <= SAFE_VOLUMES
    assert "memory" in only["resources"]["limits"]
    # The autoscaler, in the pod of Ray's head, asks Kubernetes for pods.
    assert spec.get("automountServiceAccountToken", True) is (name == "ray-0")
    assert manifest("Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_user_is_that_of_the_image() -> None:
    """Else it has no home, and may not write to its cache."""
    match = re.search(r"useradd --create-home --uid (\d+) ", DOCKERFILE)
    assert match
    for context in (spec["securityContext"] for name, spec in pods().items() if name != "redis"):
        assert [context["runAsUser"], context["runAsGroup"], context["fsGroup"]] == 3 * [int(match[1])]


@pytest.mark.parametrize(("form", "service"), FORMS.items())
def test_volumes_are_what_compose_lets_the_service_write(form: str, service: str) -> None:
    """The cache, the uploads that are accepted at the same time, and the shared memory of all gateways.

    Not the folder of a database: what a pod keeps alone goes with it.
    """
    mounts = {mount["mountPath"]: mount["name"] for mount in container(form)["volumeMounts"]}
    cache, _ = (volume.split(":")[1] for volume in SERVICES[service]["volumes"])
    (temporary,) = (folder.split(":")[0] for folder in SERVICES[service]["tmpfs"])
    assert set(mounts) == {cache, temporary, "/dev/shm"}
    volumes = {volume["name"]: volume["emptyDir"] for volume in pod(form)["volumes"]}
    assert set(volumes) == set(mounts.values())
    known = settings(form)
    assert quantity(volumes[mounts[temporary]]["sizeLimit"]) >= known.max_uploads * known.max_upload_mb * 1_000_000
    shared = volumes[mounts["/dev/shm"]]
    assert shared["medium"] == "Memory"
    assert quantity(shared["sizeLimit"]) >= known.gateways * POOL_BLOCKS * BLOCK_BYTES
    caches = [value for value in shlex.split(DOCKERFILE) if "_CACHE_DIR=/" in value]
    assert caches and all(value.split("=")[1].startswith(cache) for value in caches)


def test_the_network_policy_opens_the_ports_of_the_service() -> None:
    """In: its one port. Out: names and https, but nothing of the cloud's own metadata."""
    spec = manifest("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    opened = [port["port"] for rule in spec["ingress"] for port in rule["ports"]]
    assert opened == [container()["ports"][0]["containerPort"]]
    names, web, traces, shared = spec["egress"]
    assert {(port["protocol"], port["port"]) for port in names["ports"]} == {("UDP", 53), ("TCP", 53)}
    assert web["ports"] == [{"protocol": "TCP", "port": 443}]
    assert traces["ports"] == [{"protocol": "TCP", "port": 4318}]
    assert "169.254.0.0/16" in web["to"][0]["ipBlock"]["except"]
    assert [port["port"] for port in shared["ports"]] == [redis_port()]


# Redis.


def redis_port() -> int:
    ((served,),) = (manifest("Service", "redis")["spec"]["ports"],)
    port: int = served["port"]
    return port


def test_redis_is_reached_by_our_pods_only() -> None:
    """All of them have a label that its network policy lists, and it has a password."""
    (rule,) = manifest("NetworkPolicy", "redis")["spec"]["ingress"]
    (allowed,) = rule["from"][0]["podSelector"]["matchExpressions"]
    ours = [manifest("Deployment")["spec"]["template"], *ray_templates()]
    assert {template["metadata"]["labels"][allowed["key"]] for template in ours} == set(allowed["values"])
    (only,) = pods()["redis"]["containers"]
    assert only["args"][:2] == ["--requirepass", "$(PASSWORD)"]
    storage = manifest("RayService", "ray")["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"]
    assert storage["redisAddress"] == f"{manifest('Service', 'redis')['metadata']['name']}:{redis_port()}"
    assert storage["redisPassword"]["valueFrom"] == only["env"][0]["valueFrom"]


# Ray.


def serve_config() -> dict[str, Any]:
    """The configuration of Ray Serve, which stands as text in the RayService."""
    found: dict[str, Any] = yaml.safe_load(manifest("RayService", "ray")["spec"]["serveConfigV2"])
    return found


def test_the_ray_service_has_fields_that_kuberay_knows() -> None:
    spec = manifest("RayService", "ray")["spec"]
    cluster = spec["rayClusterConfig"]
    assert manifest("RayService", "ray")["apiVersion"] == "ray.io/v1"
    assert set(spec) <= RAY_FIELDS["service"]
    assert set(cluster) <= RAY_FIELDS["cluster"]
    assert set(cluster["autoscalerOptions"]) <= RAY_FIELDS["autoscaler"]
    assert set(cluster["gcsFaultToleranceOptions"]) <= RAY_FIELDS["storage"]
    assert set(cluster["headGroupSpec"]) <= RAY_FIELDS["head"]
    assert all(set(group) <= RAY_FIELDS["workers"] for group in cluster["workerGroupSpecs"])
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert all(isinstance(value, str) for group in groups for value in group["rayStartParams"].values())


def test_ray_is_configured_as_elsewhere() -> None:
    """As by `serve deploy deploy/ray/serve.yaml`, but with two engines at least. Keys come from the Secret."""
    expected = yaml.safe_load((REPOSITORY / "deploy/ray/serve.yaml").read_text())
    expected["applications"][0]["deployments"][0]["autoscaling_config"]["min_replicas"] = 2
    assert serve_config() == expected
    for template in ray_templates():
        (only,) = template["spec"]["containers"]
        assert only["envFrom"] == [{"secretRef": {"name": "tutti-keys"}}]
        # The image sets them for `tutti serve`.
        assert only["args"] == ["unset TUTTI_HOST TUTTI_PORT"]
    (version,) = re.findall(r"^ray==(\S+)$", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)
    assert manifest("RayService", "ray")["spec"]["rayClusterConfig"]["rayVersion"] == version


def test_rays_dashboard_is_closed() -> None:
    """Clients reach the port of Serve alone: the dashboard runs what it is sent."""
    (only,) = ray_templates()[1]["spec"]["containers"]
    serve = next(port["containerPort"] for port in only["ports"] if port["name"] == "serve")
    assert serve == serve_config()["http_options"]["port"]
    clients, ours, operator = manifest("NetworkPolicy", "ray")["spec"]["ingress"]
    assert clients == {"ports": [{"protocol": "TCP", "port": serve}]}
    assert [peer["podSelector"]["matchLabels"] for peer in ours["from"]] == [ray_templates()[0]["metadata"]["labels"]]
    (peer,) = operator["from"]
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "kuberay-operator"}


def test_the_nodes_of_ray_have_what_its_deployments_ask_for() -> None:
    """Each has a GPU, for one engine; the CPUs of all are enough for all engines and gateways, without the head's."""
    cluster = manifest("RayService", "ray")["spec"]["rayClusterConfig"]
    (group,) = cluster["workerGroupSpecs"]
    (only,) = group["template"]["spec"]["containers"]
    limits = only["resources"]["limits"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    deployments = {each["name"]: each for each in serve_config()["applications"][0]["deployments"]}
    engines = deployments["Engines"]["autoscaling_config"]
    assert deployments["Engines"]["ray_actor_options"]["num_gpus"] == int(limits["nvidia.com/gpu"]) == 1
    assert (engines["min_replicas"], engines["max_replicas"]) == (group["minReplicas"], group["maxReplicas"])
    n_cpus = {
        size: sum(
            each["ray_actor_options"]["num_cpus"] * each["autoscaling_config"][f"{size}_replicas"]
            for each in deployments.values()
        )
        for size in ("min", "max")
    }
    assert n_cpus["min"] <= int(limits["cpu"]) * group["minReplicas"]
    assert n_cpus["max"] <= int(limits["cpu"]) * group["maxReplicas"]
