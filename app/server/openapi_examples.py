"""Tags and examples of the OpenAPI document, for readers and for generators of code. A test checks each example."""

from typing import Any

PLUGINS_TAG = "Plug-ins"
TAGS = {
    "Files": "Recordings that are transcribed at once, as OpenAI's clients ask for it.",
    "Live sessions": "Credentials for live sessions. The sessions are WebSockets: see /asyncapi.json.",
    "Deepgram": "Deepgram's protocol.",
    "Rooms": "Captions for readers without a key.",
    "Models": "What the server can transcribe.",
    PLUGINS_TAG: "What plug-ins serve.",
    "Operation": "Health, metrics, and the server's own pages.",
}
"""The tags, and what each is for, in the order in which they are shown."""
_TAG_OF_PREFIX = {
    "/v1/audio/": "Files",
    "/v1/realtime/": "Live sessions",
    "/v1/listen": "Deepgram",
    "/v1/auth/": "Deepgram",
    "/captions/": "Rooms",
    "/v1/models": "Models",
}


def tag_of(path: str) -> str:
    """The tag of the operations of a path. What no other tag takes is of the operation of the server."""
    return next((tag for prefix, tag in _TAG_OF_PREFIX.items() if path.startswith(prefix)), "Operation")


_TEXT = "Printing differs from most if not from all the arts."
_MODEL = {
    **{"id": "tutti-base", "object": "model", "created": 1767323045, "owned_by": "tutti", "root": "tutti-base"},
    **{"languages": ["en", "de"], "tasks": ["transcribe", "translate"]},
}
TRANSCRIPT = {"text": _TEXT, "usage": {"type": "duration", "seconds": 4}, "languages": [{"code": "en"}]}
_SESSION = {"id": "sess_7a1d", "object": "realtime.transcription_session", "include": []}
_TRANSCRIPTION = {"model": "whisper-1", "language": "en"}
_FILE_FIELDS = {"model": "whisper-1", "language": "en", "response_format": "json", "hotwords": "Morris, Walker"}

REQUESTS: dict[str, Any] = {
    "transcribe": _FILE_FIELDS,
    "translate": {"model": "whisper-1", "response_format": "json"},
    "createClientSecret": {
        "expires_after": {"anchor": "created_at", "seconds": 600},
        "session": {"type": "transcription", "audio": {"input": {"transcription": _TRANSCRIPTION}}},
    },
    "withdrawClientSecret": {"value": "ek_..."},
    "createTranscriptionSession": {"input_audio_transcription": _TRANSCRIPTION},
    "listen": {"url": "https://media.example.org/talk.mp3"},
    "grantToken": {"ttl_seconds": 30},
}
"""The body of a request for each operation that takes one; of a form, its fields beside the recording."""
ANSWERS: dict[str, Any] = {
    "transcribe": TRANSCRIPT,
    "translate": TRANSCRIPT,
    "listModels": {"object": "list", "data": [_MODEL]},
    "retrieveModel": _MODEL,
    "createClientSecret": {
        "value": "ek_...",
        "expires_at": 1767323645,
        "session": _SESSION | {"type": "transcription", "audio": {"input": {"transcription": _TRANSCRIPTION}}},
    },
    "createTranscriptionSession": {
        **_SESSION,
        **{"client_secret": {"value": "ek_...", "expires_at": 1767323645}, "modalities": ["text"]},
        **{"input_audio_format": "pcm16", "input_audio_transcription": _TRANSCRIPTION},
        **{"input_audio_noise_reduction": None, "turn_detection": None},
    },
    "listen": {
        "metadata": {
            **{"request_id": "r_01", "sha256": "9f86d081", "created": "2026-01-02T03:04:05Z"},
            **{"duration": 4.0, "channels": 1},
        },
        "results": {"channels": [{"alternatives": [{"transcript": _TEXT, "confidence": 0.97, "words": []}]}]},
    },
    "withdrawClientSecret": {"withdrawn": True, "expires_at": 1767323645},
    "grantToken": {"access_token": "ek_...", "expires_in": 30},
    "pageModel": {
        **{"name": "tutti-base", "languages": [{"code": "en", "name": "English"}]},
        **{"translations": ["en"], "rooms": True},
    },
}
"""The JSON of a successful answer of each operation that has one."""
