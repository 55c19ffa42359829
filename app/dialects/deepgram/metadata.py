"""The metadata that every answer of Deepgram's API carries."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tutti_server.app.dialects.deepgram.options import Options
from tutti_server.app.session.messages import events


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as its answers describe it."""

    id: str
    model: str
    """The name of the model that answers."""
    version: str
    """The version of this server."""
    created: datetime

    @property
    def model_uuid(self) -> str:
        """An id made from the model's name: the same on every server."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"tutti:{self.model}"))

    @property
    def model_info(self) -> dict[str, str]:
        """The model as Deepgram describes one."""
        return {"name": self.model, "version": self.version, "arch": "whisper"}

    @property
    def result_metadata(self) -> dict[str, Any]:
        """The metadata of one live result."""
        return {"request_id": self.id, "model_info": self.model_info, "model_uuid": self.model_uuid}

    def metadata(self, sha256: str, duration_s: float, channels: int, options: Options) -> dict[str, Any]:
        """The metadata of the whole audio."""
        metadata: dict[str, Any] = {
            "transaction_key": "deprecated",
            "request_id": self.id,
            "sha256": sha256,
            "created": self.created.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "duration": round(duration_s, 3),
            "channels": channels,
            "models": [self.model_uuid],
            "model_info": {self.model_uuid: self.model_info},
        }
        if options.extra:
            metadata["extra"] = dict(options.extra)
        return metadata


def warning(notice: events.Notice) -> dict[str, str]:
    """A notice as one of the `warnings` in the metadata."""
    return {"parameter": "", "type": notice.code, "message": notice.message}
