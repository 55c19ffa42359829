"""What `kubectl kustomize` makes of a folder, for tests: resources, a namespace, image tags and JSON patches."""

from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]
FILE = "kustomization.yaml"
FEATURES = {"apiVersion", "kind", "namespace", "resources", "images", "patches"}


def build(folder: Path) -> list[Manifest]:
    """The manifests of a folder with a kustomization.

    Raises:
        ValueError: the kustomization uses a feature that this module does not know, or a patch finds nothing.
    """
    kustomization = yaml.safe_load((folder / FILE).read_text())
    if unknown := kustomization.keys() - FEATURES:
        raise ValueError(f"{folder / FILE}: expected {', '.join(sorted(FEATURES))}, got {', '.join(sorted(unknown))}")
    manifests: list[Manifest] = []
    for name in kustomization["resources"]:
        path = folder / name
        manifests += build(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    for manifest in manifests:
        if "namespace" in kustomization and manifest["kind"] != "Namespace":
            manifest["metadata"]["namespace"] = kustomization["namespace"]
        for container in _containers(manifest):
            container["image"] = _retagged(container["image"], kustomization.get("images", []))
    for patch in kustomization.get("patches", []):
        (target,) = (manifest for manifest in manifests if _is_target(manifest, patch["target"]))
        for operation in yaml.safe_load(patch["patch"]):
            _apply(target, operation)
    return manifests


def _containers(manifest: Manifest) -> list[dict[str, Any]]:
    if manifest["kind"] != "Deployment":
        return []
    containers: list[dict[str, Any]] = manifest["spec"]["template"]["spec"]["containers"]
    return containers


def _retagged(image: str, images: list[dict[str, str]]) -> str:
    name = image.partition(":")[0]
    return next((f"{name}:{each['newTag']}" for each in images if each["name"] == name), image)


def _is_target(manifest: Manifest, target: dict[str, str]) -> bool:
    return (manifest["kind"], manifest["metadata"]["name"]) == (target["kind"], target["name"])


def _apply(manifest: Manifest, operation: dict[str, Any]) -> None:
    """Apply one operation of RFC 6902: `remove`, or `replace` of what is there.

    Raises:
        ValueError: it is another operation, or its path leads nowhere.
    """
    *path, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
    place: Any = manifest
    for part in path:
        place = place[int(part) if isinstance(place, list) else part]
    if last not in place:
        raise ValueError(f"expected something at {operation['path']}, got nothing")
    match operation["op"]:
        case "remove":
            del place[last]
        case "replace":
            place[last] = operation["value"]
        case other:
            raise ValueError(f"expected remove or replace, got {other}")
