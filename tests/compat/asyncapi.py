"""Deepgram's published schema of its live messages, if a copy lies in a folder `shared/specs` above the checkout.

Source: deepgram/deepgram-api-specs, `asyncapi.yml`. It is not copied into this repository.
"""

from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

SCHEMA = Path("shared", "specs", "deepgram-asyncapi.yml")
_MESSAGES = {
    "Connected": "ListenV2_ListenV2Connected",
    "TurnInfo": "ListenV2_ListenV2TurnInfo",
    "ConfigureSuccess": "ListenV2_ListenV2ConfigureSuccess",
    "ConfigureFailure": "ListenV2_ListenV2ConfigureFailure",
    "Error": "ListenV2_ListenV2FatalError",
}
"""The schema of each message of Flux. `Warning` is newer than the published schema."""


def flux_problems(message: dict[str, Any]) -> list[str]:
    """What the schema has against a message of Flux: nothing, also where there is no copy of it."""
    if _components() is None or message["type"] == "Warning":
        return []
    errors = _validator(_MESSAGES[message["type"]]).iter_errors(message)
    return [f"{'.'.join(map(str, error.instance_path))}: {error.message}" for error in errors]


@cache
def _validator(name: str) -> jsonschema_rs.Draft7Validator:
    schema = {"$ref": f"#/components/schemas/{name}", "components": _components()}
    return jsonschema_rs.Draft7Validator(schema, validate_formats=True)


@cache
def _components() -> Any:
    """The schemas, or `None` where there is no copy of them."""
    for folder in Path(__file__).resolve().parents:
        if (folder / SCHEMA).exists():
            return yaml.safe_load((folder / SCHEMA).read_text())["components"]
    return None
