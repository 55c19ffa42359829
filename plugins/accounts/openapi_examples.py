"""Tags and examples of the paths of accounts, for readers and for generators of code. A test checks each example."""

from typing import Any

from tutti_server.app.server.openapi_examples import TRANSCRIPT

_JOB = {
    **{"id": "job_5f0c1b2a", "object": "job", "status": "done", "created_at": "2026-01-02T03:04:05Z"},
    **{"started_at": "2026-01-02T03:04:06Z", "ended_at": "2026-01-02T03:04:09Z", "attempts": 1, "audio_s": 21.0},
    **{"error": None, "result_url": "/v1/jobs/job_5f0c1b2a/result"},
}
_QUEUED = _JOB | {"status": "queued", "started_at": None, "ended_at": None, "attempts": 0, "audio_s": None}
_QUEUED = _QUEUED | {"result_url": None}

REQUESTS: dict[str, Any] = {
    "createJob": {"url": "https://media.example.org/talk.mp3", "response_format": "verbose_json"},
}
"""The fields of a form beside the recording, by operation."""
ANSWERS: dict[str, Any] = {
    "createJob": _QUEUED,
    "listJobs": {"object": "list", "data": [_JOB], "has_more": False},
    "retrieveJob": _JOB,
    "deleteJob": {"id": _JOB["id"], "object": "job", "deleted": True},
    "jobResult": TRANSCRIPT,
    "cancelJob": _QUEUED | {"status": "cancelled", "ended_at": "2026-01-02T03:04:06Z"},
    "usage": {
        **{"object": "list", "from": "2026-01-01", "to": "2026-01-02"},
        "data": [
            {"key_id": "k_01", "key": "shop", "day": "2026-01-02", "kind": "live", "audio_s": 93.5, "n": 4},
        ],
    },
}
"""The JSON of a successful answer of each operation."""
