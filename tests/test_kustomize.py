"""The stand-in for `kubectl kustomize`, by which `test_kubernetes.py` reads the manifests."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.kustomize import FILE, Manifest, build

FOLDER = Path(__file__).parents[1] / "deploy/kubernetes"
FORMS = sorted(path.parent.name for path in FOLDER.glob(f"*/{FILE}"))
COMMAND_TIMEOUT_S = 60


def in_order(manifests: list[Manifest]) -> list[Manifest]:
    return sorted(manifests, key=lambda each: (each["kind"], each["metadata"]["name"]))


@pytest.mark.parametrize("form", FORMS)
def test_it_builds_what_kubectl_builds(form: str) -> None:
    """The real program needs no cluster for that."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed: see https://kubernetes.io/docs/tasks/tools/")
    command = [kubectl, "kustomize", str(FOLDER / form)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=COMMAND_TIMEOUT_S).stdout
    assert in_order(list(yaml.safe_load_all(output))) == in_order(build(FOLDER / form))
