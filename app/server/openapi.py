"""The OpenAPI document of everything that is served over HTTP; `asyncapi.py` describes WebSockets.

Written by hand, as no framework knows what the endpoints accept. A test sends requests made from it to the real
application, and compares each answer with it; another one compares its paths with the table of routes.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tutti_server.app.dialects.deepgram.endpoint import DEFAULT_TOKEN_S, MAX_TOKEN_S
from tutti_server.app.dialects.deepgram.options import DIARIZE_MODELS
from tutti_server.app.dialects.limits import MAX_SPEAKERS
from tutti_server.app.dialects.openai.files_wire import FORMATS
from tutti_server.app.dialects.openai.realtime_endpoint import DEFAULT_SECRET_S, MAX_SECRET_S, MIN_SECRET_S
from tutti_server.app.dialects.openai.speakers_wire import FORMATS as SPEAKER_FORMATS
from tutti_server.app.dialects.rooms.endpoint import MAX_MPEGTS
from tutti_server.app.files.subtitles import DEFAULT_LAYOUT, LAYOUT_LIMITS
from tutti_server.app.server.openapi_examples import ANSWERS, PLUGINS_TAG, REQUESTS, TAGS, tag_of
from tutti_server.app.version import VERSION
from tutti_server.engine.api import MAX_BEAM_SIZE, MAX_BEST_OF

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
ANY_OBJECT: Schema = {"type": "object"}


def object_of(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """An object with these fields; others may come."""
    return {"type": "object", "required": sorted(required), "properties": required | (optional or {})}


def _whole(least: int, most: int, **more: Any) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def list_of(items: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def answer(description: str, headers: dict[str, Schema] | None = None, **contents: Schema) -> Schema:
    """An answer, with the schema of each content type; `_` stands for `/` in its name."""
    content = {name.replace("_", "/"): {"schema": schema} for name, schema in contents.items()}
    return {"description": description, "headers": (headers or {}) | {"x-request-id": REQUEST_ID}, "content": content}


def _ok(description: str, headers: dict[str, Schema] | None = None, **contents: Schema) -> dict[str, Schema]:
    return {"200": answer(description, headers, **contents)}


def _refused(status: str, description: str, schema: str = "Error") -> Schema:
    headers = {"retry-after": RETRY_AFTER} if status in ("429", "503") else {}
    return answer(description, headers, application_json=_ref(schema), text_plain=TEXT)


def header(description: str, schema: Schema) -> Schema:
    """A header of an answer."""
    return {"description": description, "schema": schema}


REQUEST_ID = header("The id of the request, which is in the log, too.", TEXT)
RETRY_AFTER = header("After how many seconds to try again.", INTEGER)
IGNORED = header("The fields or parameters of the request that had no effect, separated by commas.", TEXT)
ADJUSTED = header("The parameters whose value was replaced, as `name=value`, separated by commas.", TEXT)
WARNED = header("What there is to know of the recording beside its text.", TEXT)
ANY_MODEL = "One of the names in `/v1/models`. A server of one model answers to any name."
ANSWERING_MODEL = header("The model that has answered.", TEXT)


ERROR = object_of(
    {"error": object_of({"message": TEXT, "type": TEXT, "param": TEXT_OR_NULL, "code": TEXT_OR_NULL})},
)
DEEPGRAM_ERROR = object_of({"err_code": TEXT, "err_msg": TEXT, "request_id": TEXT})
MODEL = object_of(
    {
        "id": TEXT,
        "object": {"const": "model"},
        "created": INTEGER,
        "owned_by": TEXT,
        "root": TEXT,
        "languages": list_of(TEXT),
        "tasks": list_of({"enum": ["transcribe", "translate"]}),
    },
    {"is_default": BOOLEAN},
)
TIMES = {"start": NUMBER, "end": NUMBER}
SEGMENT = object_of(
    {
        "id": INTEGER,
        "seek": INTEGER,
        **TIMES,
        "text": TEXT,
        "tokens": list_of(INTEGER),
        "temperature": NUMBER,
        "avg_logprob": NUMBER,
        "compression_ratio": NUMBER,
        "no_speech_prob": NUMBER,
    },
    {"redactions": list_of(object_of({"kind": TEXT, "start_s": NUMBER, "end_s": NUMBER})), "language": TEXT_OR_NULL},
)
USAGE = object_of({"type": {"const": "duration"}, "seconds": INTEGER})
SCORED_WORDS = list_of(object_of({"word": TEXT, **TIMES, "confidence": NUMBER}))
LANGUAGES = list_of(object_of({"code": TEXT}))
LOGPROBS = list_of(object_of({"token": TEXT, "logprob": NUMBER, "bytes": list_of(INTEGER)}))
WARNINGS = list_of(object_of({"code": TEXT, "message": TEXT}))
UNCOVERED = list_of({"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2})
TRANSCRIPT = object_of(
    {"text": TEXT, "usage": USAGE, "languages": LANGUAGES}, {"logprobs": LOGPROBS, "warnings": WARNINGS}
)
VERBOSE_TRANSCRIPT = object_of(
    {
        "task": {"enum": ["transcribe", "translate"]},
        "language": TEXT,
        "duration": NUMBER,
        "text": TEXT,
        "usage": USAGE,
        "uncovered": UNCOVERED,
    },
    {
        "segments": list_of(_ref("Segment")),
        "words": list_of(object_of({"word": TEXT, **TIMES})),
        "warnings": WARNINGS,
    },
)
SPEAKER_SEGMENT = object_of(
    {
        "type": {"const": "transcript.text.segment"},
        "id": TEXT,
        **TIMES,
        "text": TEXT,
        "speaker": TEXT,
    },
    {
        "language": TEXT_OR_NULL,
        "confidence": NUMBER,
        "words": SCORED_WORDS,
    },
)
DIARIZED_TRANSCRIPT = object_of(
    {
        "task": {"enum": ["transcribe", "translate"]},
        "duration": NUMBER,
        "text": TEXT,
        "segments": list_of(_ref("SpeakerSegment")),
        "usage": USAGE,
    },
    {"warnings": WARNINGS},
)
CALL_RECORD = object_of(
    {
        "type": {"const": "call_record"},
        "version": INTEGER,
        **dict.fromkeys(("duration_s", "silence_s", "silence_share", "overlap_s"), NUMBER),
        **dict.fromkeys(("speakers", "interruptions", "redactions", "turns"), list_of(ANY_OBJECT)),
        "uncovered": UNCOVERED,
        "usage": USAGE,
    },
    {"warnings": WARNINGS},
)


def _of_track(transcript: Schema) -> Schema:
    """The transcript of one of all tracks of a file."""
    more = {"track": INTEGER, "track_language": TEXT_OR_NULL}
    return transcript | {"required": [*transcript["required"], *more], "properties": transcript["properties"] | more}


TRACKS = object_of({"tracks": list_of({"oneOf": [_of_track(TRANSCRIPT), _of_track(VERBOSE_TRANSCRIPT)]})})
TEXT_DELTA = object_of({"type": {"const": "transcript.text.delta"}, "delta": TEXT}, {"logprobs": LOGPROBS})
TEXT_SEGMENT = object_of(
    {
        "type": {"const": "transcript.text.segment"},
        **TIMES,
        "text": {
            "type": "string",
            "description": "Empty for speech without text; the fields of a segment are missing then.",
        },
        "utterance": INTEGER,
    },
    {
        **{name: schema for name, schema in SEGMENT["properties"].items() if name not in ("start", "end", "text")},
        "confidence": NUMBER,
        "words": SCORED_WORDS,
    },
)
TOKEN_USAGE = object_of(
    {
        "type": {"const": "tokens"},
        "input_tokens": INTEGER,
        "input_token_details": object_of({"audio_tokens": INTEGER}),
        "output_tokens": INTEGER,
        "total_tokens": INTEGER,
    }
)
TEXT_DONE = object_of(
    {"type": {"const": "transcript.text.done"}, "text": TEXT, "usage": TOKEN_USAGE, "languages": LANGUAGES},
    {
        "logprobs": LOGPROBS,
        "duration": NUMBER,
        "speech_duration": NUMBER,
        "words": INTEGER,
        "warnings": WARNINGS,
    },
)
DEEPGRAM_WORD = object_of(
    {"word": TEXT, **TIMES, "confidence": NUMBER},
    {"punctuated_word": TEXT, "language": TEXT, "speaker": INTEGER, "speaker_confidence": NUMBER},
)
DEEPGRAM_SENTENCE = object_of({"text": TEXT, **TIMES})
DEEPGRAM_PARAGRAPHS = object_of(
    {
        "transcript": TEXT,
        "paragraphs": list_of(
            object_of(
                {"sentences": list_of(DEEPGRAM_SENTENCE), "num_words": INTEGER, **TIMES},
                {"speaker": INTEGER},
            )
        ),
    }
)
DEEPGRAM_UTTERANCE = object_of(
    {
        **TIMES,
        "confidence": NUMBER,
        "channel": INTEGER,
        "transcript": TEXT,
        "words": list_of(_ref("DeepgramWord")),
        "id": TEXT,
    },
    {"speaker": INTEGER, "languages": list_of(TEXT)},
)
DEEPGRAM_TRANSCRIPT = object_of(
    {
        "metadata": object_of(
            {"request_id": TEXT, "sha256": TEXT, "created": TEXT, "duration": NUMBER, "channels": INTEGER},
            {
                "transaction_key": TEXT,
                "models": list_of(TEXT),
                "model_info": ANY_OBJECT,
                "warnings": list_of(object_of({"parameter": TEXT, "type": TEXT, "message": TEXT})),
                "extra": ANY_OBJECT,
            },
        ),
        "results": object_of(
            {
                "channels": list_of(
                    object_of(
                        {
                            "alternatives": list_of(
                                object_of(
                                    {"transcript": TEXT, "confidence": NUMBER, "words": list_of(_ref("DeepgramWord"))},
                                    {"paragraphs": DEEPGRAM_PARAGRAPHS, "languages": list_of(TEXT)},
                                )
                            )
                        },
                        {"detected_language": TEXT, "search": list_of(ANY_OBJECT)},
                    )
                )
            },
            {"utterances": list_of(DEEPGRAM_UTTERANCE)},
        ),
    }
)
PAGE_MODEL = object_of(
    {
        "name": TEXT,
        "languages": list_of(object_of({"code": TEXT, "name": TEXT})),
        "translations": list_of(TEXT),
        "rooms": BOOLEAN,
    },
    {"models": list_of(TEXT)},
)
EXPIRY = object_of(
    {},
    {
        "anchor": {"const": "created_at"},
        "seconds": _whole(MIN_SECRET_S, MAX_SECRET_S, default=DEFAULT_SECRET_S),
    },
)
SCHEMAS = {
    "Error": ERROR,
    "DeepgramError": DEEPGRAM_ERROR,
    "Model": MODEL,
    "Segment": SEGMENT,
    "Transcript": TRANSCRIPT,
    "VerboseTranscript": VERBOSE_TRANSCRIPT,
    "DiarizedTranscript": DIARIZED_TRANSCRIPT,
    "SpeakerSegment": SPEAKER_SEGMENT,
    "CallRecord": CALL_RECORD,
    "Tracks": TRACKS,
    "TextDelta": TEXT_DELTA,
    "TextSegment": TEXT_SEGMENT,
    "TextDone": TEXT_DONE,
    "DeepgramWord": DEEPGRAM_WORD,
    "DeepgramTranscript": DEEPGRAM_TRANSCRIPT,
    "Expiry": EXPIRY,
    "DeepgramAccepted": object_of({"request_id": TEXT}),
}

FORM = object_of(
    {"file": {"type": "string", "format": "binary", "description": "The recording, in any format of FFmpeg."}},
    {
        "model": {"type": "string", "description": ANY_MODEL},
        "language": {"type": "string", "description": "A code or an English name. Without it, it is detected."},
        "languages": {
            **list_of(TEXT),
            "description": "One language counts as `language`. Of several, one is detected.",
        },
        "prompt": TEXT,
        "response_format": {
            "enum": [*FORMATS, *SPEAKER_FORMATS],
            "default": "json",
            "description": "`diarized_json` and call records: no translations, where the server tells speakers apart.",
        },
        "stream": {
            "type": "boolean",
            "default": False,
            "description": "Answer with server-sent events; with `verbose_json`, segments are among them.",
        },
        "timestamp_granularities[]": list_of({"enum": ["segment", "word"]}),
        "include[]": list_of({"enum": ["logprobs"]}),
        "temperature": {"type": "number", "minimum": 0, "maximum": 1},
        "best_of": _whole(1, MAX_BEST_OF),
        "beam_size": _whole(
            1,
            MAX_BEAM_SIZE,
            description="Beams at temperature 0. 1: greedy. Without it, as many as the server has chosen.",
        ),
        "track": {
            "type": "string",
            "description": "The audio track of the file: a number from 0, or a language. Without it, the default one.",
        },
        **{
            name: _whole(least, most, description=f"For subtitles: the most {what}.")
            | ({"default": default} if (default := getattr(DEFAULT_LAYOUT, name)) else {})
            for (name, (least, most)), what in zip(
                LAYOUT_LIMITS.items(), ("columns of a line", "lines of a cue", "words of a line"), strict=True
            )
        },
        "tracks": {
            "type": "string",
            "enum": ["all"],
            "description": "All audio tracks of the file, each with a result of its own in `tracks`. For `json` and "
            "`verbose_json`, without `stream` and `track`.",
        },
        "temperature_fallback": {"type": "boolean", "default": True},
        "condition_on_previous_text": {"type": "boolean", "default": False},
        "hotwords": {"type": "string", "description": "Names and terms to expect, separated by commas."},
        "keywords": {**list_of(TEXT), "description": "The same as a list."},
        "chunking_strategy": {"type": "string", "description": "`auto`, or an object of type `server_vad` as JSON."},
        "known_speaker_names[]": {**list_of(TEXT), "description": "With `diarized_json`, names for speakers."},
        "known_speaker_references[]": {**list_of(TEXT), "description": "A clip of each as a data URL, 2 to 10 s."},
        "channel_names[]": {**list_of(TEXT), "description": "With `diarized_json`, the speaker on each channel."},
        "text_rules": {
            "type": "string",
            "description": "What is done with the text, as JSON: the object `text_rules` of the native protocol.",
        },
        "max_speakers": _whole(
            1,
            MAX_SPEAKERS,
            default=MAX_SPEAKERS,
            description="With `diarized_json`, the most speakers that are told apart.",
        ),
    },
)
UPLOAD_REFUSALS = {
    "408": "The body came too slowly, or not at all.",
    "413": "The body is larger than the server allows.",
    "429": "The server has no room; `Retry-After` says when to try again.",
    "500": "The engine failed.",
    "503": "The server is going down, or has no engine.",
    "507": "The server has no room on its disk.",
}
EVENTS = ("TextDelta", "TextSegment", "SpeakerSegment", "TextDone", "Error")
EVENT_STREAM = object_of(
    {
        "data": {
            "type": "string",
            "description": "What each server-sent event holds. An error is the last one.",
            "contentMediaType": "application/json",
            "contentSchema": {"oneOf": [_ref(name) for name in EVENTS]},
        }
    }
)
BODY_REFUSALS = {status: UPLOAD_REFUSALS[status] for status in ("408", "413")}


def operation(
    name: str,
    summary: str,
    answers: dict[str, Schema],
    *,
    refusals: dict[str, str] | None = None,
    error: str = "Error",
    needs_key: bool = True,
    **more: Any,
) -> Schema:
    """One operation. Every request can be malformed (400, 414, 431), and come from a foreign page (403)."""
    reasons = {
        "400": "The request, or one of its values, is wrong.",
        "403": "A web page of another origin asks, the host is unknown, or the key may not be used for this.",
        "414": "The URL is too long.",
        "431": "The head of the request is too long.",
        **({"401": "A valid key is needed.", "503": "The database of keys is away."} if needs_key else {}),
        **(refusals or {}),
    }
    refused = {status: _refused(status, why, error) for status, why in reasons.items()}
    # Refused before the dialect sees the request, or by the dialect.
    either = {"schema": {"anyOf": [_ref(name) for name in sorted({"Error", error})]}}
    refused["403"]["content"]["application/json"] = either
    security: Schema = {"security": [{"key": []}, {}]} if needs_key else {"security": []}
    return {"operationId": name, "summary": summary, "responses": refused | answers, **security, **more}


def _get(name: str, summary: str, answers: dict[str, Schema], **more: Any) -> dict[str, Schema]:
    return {"get": operation(name, summary, answers, **more)}


def _get_openly(name: str, summary: str, answers: dict[str, Schema], **more: Any) -> dict[str, Schema]:
    """What everybody may get, without a key."""
    return _get(name, summary, answers, needs_key=False, **more)


def _post(name: str, summary: str, answers: dict[str, Schema], **more: Any) -> dict[str, Schema]:
    return {"post": operation(name, summary, answers, **more)}


def json_body(schema: Schema) -> Schema:
    """A body of JSON, which may be missing."""
    return {"required": False, "content": {"application/json": {"schema": schema}}}


def with_examples(operation: Schema, request: Any, answer: Any) -> Schema:
    """An operation with an example of its request and of the JSON of its successful answer; `None` adds none."""
    answers = {
        status: response | {"content": _with_example(response["content"], answer, "application/json")}
        if status < "300"
        else response
        for status, response in operation["responses"].items()
    }
    body = operation.get("requestBody")
    if body is None:
        return operation | {"responses": answers}
    content = _with_example(body["content"], request, "application/json", "multipart/form-data")
    return operation | {"responses": answers, "requestBody": body | {"content": content}}


def _with_example(content: Schema, example: Any, *kinds: str) -> Schema:
    """The content types of a body, those of these kinds with an example."""
    if example is None:
        return content
    return content | {kind: content[kind] | {"example": example} for kind in kinds if kind in content}


ANSWERS_TO_FORMS = ("Transcript", "VerboseTranscript", "DiarizedTranscript", "CallRecord", "Tracks")


def _file_operation(name: str, summary: str) -> dict[str, Schema]:
    either = {"anyOf": [_ref(name) for name in ANSWERS_TO_FORMS]}
    headers = {"x-tutti-ignored": IGNORED, "x-tutti-model": ANSWERING_MODEL, "x-tutti-warnings": WARNED}
    contents = {"application_json": either, "text_plain": TEXT, "text_vtt": TEXT, "text_event-stream": EVENT_STREAM}
    transcript = answer("The transcript, in the format of the request.", headers, **contents)
    body = {"required": True, "content": {"multipart/form-data": {"schema": FORM}}}
    refusals = {**UPLOAD_REFUSALS, "404": "The server has other models."}
    return _post(name, summary, {"200": transcript}, refusals=refusals, requestBody=body)


def query(name: str, schema: Schema, description: str) -> Schema:
    """A parameter of the address."""
    return {"name": name, "in": "query", "schema": schema, "description": description}


DEEPGRAM_PARAMETERS = [
    query("language", TEXT, "A code with or without a region, or `multi`."),
    query("detect_language", BOOLEAN, "Say which language was spoken."),
    query("punctuate", BOOLEAN, "Write punctuation and capitals."),
    query("smart_format", BOOLEAN, "The same, and paragraphs."),
    query("paragraphs", BOOLEAN, "Paragraphs and sentences."),
    query("utterances", BOOLEAN, "Stretches between pauses."),
    query("utt_split", {"type": "number", "minimum": 0}, "The pause between utterances, in seconds."),
    query("multichannel", BOOLEAN, "Transcribe each channel on its own."),
    query("track", TEXT, "The audio track of a recording: a number from 0, or a language."),
    query("keyterm", list_of(TEXT), "Names and terms to expect."),
    query("keywords", list_of(TEXT), "The same; a weight after `:` has no effect, but a negative one leaves it out."),
    query("redact", list_of(TEXT), "What is not written down: `pci`, `ssn`, `numbers`, `phone_number` and others."),
    query("numerals", BOOLEAN, "Write English numbers in digits."),
    query("profanity_filter", BOOLEAN, "Write asterisks instead of profane English words."),
    query("replace", list_of(TEXT), "`words:others`; nothing after `:` leaves the words out."),
    query("search", list_of(TEXT), "Phrases that the answer tells the places of."),
    query("diarize", BOOLEAN, "Tell speakers apart, where the server does."),
    query("diarize_model", {"enum": list(DIARIZE_MODELS[False])}, "The same; every version is one network."),
    query("max_speakers", _whole(1, MAX_SPEAKERS), "The most that are told apart."),
    query("extra", list_of(TEXT), "`name:value`, which the metadata repeats."),
    query("model", TEXT, ANY_MODEL),
    query("mip_opt_out", BOOLEAN, "Nothing is kept or learned from in any case."),
    query("no_delay", BOOLEAN, "Nothing is delayed in any case."),
    query("encoding", {"enum": ["linear16", "mulaw", "alaw"]}, "The encoding of raw audio."),
    query("sample_rate", _whole(8000, 48_000), "Of raw audio, in Hz."),
    query("channels", _whole(1, 8), "Of raw audio."),
    query(
        "callback", TEXT, "Where the transcript is sent later, as a job; the answer has the id of the request alone."
    ),
    query("callback_method", {"enum": ["POST", "PUT"]}, "How it is sent there."),
]
MODEL_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
SECRET = object_of({"value": TEXT, "expires_at": INTEGER})
SESSION_HEAD = {"id": TEXT, "object": {"const": "realtime.transcription_session"}, "include": list_of(TEXT)}
SESSION = object_of({**SESSION_HEAD, "type": {"const": "transcription"}, "audio": object_of({"input": ANY_OBJECT})})
FLAT_SESSION = {
    **SESSION_HEAD,
    "modalities": list_of(TEXT),
    "input_audio_format": {"oneOf": [TEXT, ANY_OBJECT]},
    "input_audio_transcription": ANY_OBJECT,
    "input_audio_noise_reduction": {"type": "null"},
    "turn_detection": {"oneOf": [ANY_OBJECT, {"type": "null"}]},
}
PLAIN = {"text_plain": TEXT}

ROOM_NAME = {"name": "room", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
TRACK_PARAMETERS = [
    ROOM_NAME,
    query("language", TEXT, "The code of a translation. Without it: the text as it was spoken."),
    query("mpegts", _whole(0, MAX_MPEGTS), "When the room began, in the video."),
]
EVENT_ID = query("after", TEXT, "The id of the last event that was received, as in `Last-Event-ID`.")


def _room_operation(
    name: str, summary: str, answers: dict[str, Schema], parameters: list[Schema]
) -> dict[str, dict[str, Schema]]:
    """What readers of a room fetch. They need no key."""
    refusals = {
        "404": "There is no such room.",
        "501": "There are several gateways without Redis.",
        "503": "There is no room for one more reader, nothing to fetch yet, or the server is going down.",
    }
    return _get_openly(name, summary, answers, refusals=refusals, parameters=parameters)


ROOM_PATHS = {
    "/captions/{room}.vtt": _room_operation(
        "roomTrack", "The final text of a room so far.", _ok("WebVTT.", text_vtt=TEXT), TRACK_PARAMETERS
    ),
    "/captions/{room}.m3u8": _room_operation(
        "roomPlaylist",
        "The playlist of a room for players of HLS.",
        _ok("The playlist.", **{"application_vnd.apple.mpegurl": TEXT}),
        TRACK_PARAMETERS,
    ),
    "/captions/{room}/{number}.vtt": _room_operation(
        "roomSegment",
        "One segment of that playlist.",
        _ok("WebVTT.", text_vtt=TEXT),
        [
            *TRACK_PARAMETERS,
            {"name": "number", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}},
        ],
    ),
    "/captions/{room}": _room_operation(
        "roomPage",
        "The page of a room.",
        {
            "200": answer("The page.", text_html=TEXT),
            "404": answer("The same; it waits.", text_html=TEXT),
        },
        [ROOM_NAME],
    ),
    "/captions/{room}/events": _room_operation(
        "roomEvents",
        "The text of a room as it comes, as server-sent events.",
        {
            "200": answer("The events.", **{"text_event-stream": ANY_OBJECT}),
            "204": answer("The room has ended, and everything was received."),
        },
        [ROOM_NAME, EVENT_ID],
    ),
}


PATHS: dict[str, dict[str, Schema]] = {
    **ROOM_PATHS,
    "/v1/audio/transcriptions": _file_operation("transcribe", "Transcribe a recording."),
    "/v1/audio/translations": _file_operation("translate", "Transcribe a recording in English."),
    "/v1/models": _get(
        "listModels",
        "The models, by each of their names.",
        _ok(
            "An entry for each name: a model's own, its `root`, its aliases, and the first one's `whisper-1`.",
            application_json=object_of({"object": {"const": "list"}, "data": list_of(_ref("Model"))}),
        ),
    ),
    "/v1/models/{name}": _get(
        "retrieveModel",
        "A model, by one of its names.",
        _ok("The model.", application_json=_ref("Model")),
        refusals={"404": "The server has other models."},
        parameters=[MODEL_NAME],
    ),
    "/v1/realtime/client_secrets": _post(
        "createClientSecret",
        "Make a secret with which a browser opens live sessions.",
        _ok("The secret.", application_json=object_of({"value": TEXT, "expires_at": INTEGER, "session": SESSION})),
        refusals=BODY_REFUSALS,
        requestBody=json_body(
            object_of({}, {"expires_after": _ref("Expiry"), "session": ANY_OBJECT, "rooms": BOOLEAN})
        ),
    ),
    "/v1/realtime/client_secrets/withdraw": _post(
        "withdrawClientSecret",
        "Let a client secret of this API key open no more sessions.",
        _ok(
            "It opens none any more.", application_json=object_of({"withdrawn": {"const": True}, "expires_at": INTEGER})
        ),
        refusals={
            **BODY_REFUSALS,
            "404": "This key has made no such secret, or it has expired.",
            "501": "There are several gateways without Redis.",
            "503": "The other gateways cannot be reached.",
        },
        requestBody=json_body(object_of({"value": TEXT})),
    ),
    "/v1/realtime/transcription_sessions": _post(
        "createTranscriptionSession",
        "Make such a secret, in the older shape.",
        _ok("The secret.", application_json=object_of({"client_secret": SECRET, **FLAT_SESSION})),
        refusals=BODY_REFUSALS,
        requestBody=json_body(ANY_OBJECT),
    ),
    "/v1/listen": _post(
        "listen",
        "Transcribe a recording, in Deepgram's protocol.",
        _ok(
            "The transcript.",
            {"dg-request-id": REQUEST_ID, "x-tutti-ignored": IGNORED, "x-tutti-adjusted": ADJUSTED},
            application_json={"anyOf": [_ref("DeepgramTranscript"), _ref("DeepgramAccepted")]},
        ),
        refusals=UPLOAD_REFUSALS,
        error="DeepgramError",
        parameters=DEEPGRAM_PARAMETERS,
        requestBody={
            "required": True,
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
                "application/json": {"schema": object_of({"url": TEXT})},
            },
        },
    ),
    "/v1/auth/grant": _post(
        "grantToken",
        "Make a short-lived token, in Deepgram's protocol.",
        _ok("The token.", application_json=object_of({"access_token": TEXT, "expires_in": NUMBER})),
        refusals=BODY_REFUSALS,
        error="DeepgramError",
        requestBody=json_body(
            object_of(
                {},
                {
                    "ttl_seconds": {
                        "type": "number",
                        "minimum": 1,
                        "maximum": MAX_TOKEN_S,
                        "default": DEFAULT_TOKEN_S,
                    }
                },
            )
        ),
    ),
    "/page/model": _get_openly(
        "pageModel", "What the page shows of the model.", _ok("The model.", application_json=PAGE_MODEL)
    ),
    "/page/sample.flac": _get_openly(
        "pageSample", "The recording of a person that the page plays.", _ok("The recording.", audio_flac={})
    ),
    "/healthz": _get_openly(
        "healthz",
        "Whether the process can do its work.",
        {"200": answer("It can.", **PLAIN), "503": answer("It must be started again.", **PLAIN)},
    ),
    "/readyz": _get_openly(
        "readyz",
        "Whether new sessions are accepted.",
        {"200": answer("They are.", **PLAIN), "503": answer("They are not, at the moment.", **PLAIN)},
    ),
    "/metrics": _get(
        "metrics",
        "The metrics, in Prometheus' text format.",
        _ok("The metrics.", **PLAIN),
    ),
    "/openapi.json": _get_openly("openapi", "This document.", _ok("The document.", application_json=ANY_OBJECT)),
    "/asyncapi.json": _get_openly(
        "asyncapi",
        "The AsyncAPI document of live sessions, which are WebSockets.",
        _ok("The document.", application_json=ANY_OBJECT),
    ),
}
_DOCUMENT: Schema = {
    "openapi": "3.1.0",
    "info": {
        "title": "tutti",
        "version": VERSION,
        "description": "Speech to text. Live sessions are WebSockets, which /asyncapi.json describes.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    },
    "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
    "components": {"schemas": SCHEMAS, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
}


def document(plugins: Iterable[Mapping[str, Any]] = ()) -> Schema:
    """The document of a service: its own paths, and the paths of its plug-ins. What answers a request describes it."""
    paths: dict[str, Any] = {}
    for path, operations in PATHS.items():
        paths[path] = {method: _described(path, each) for method, each in operations.items()}
    for path, operations in chain.from_iterable(each.items() for each in plugins):
        tagged = {method: {"tags": [PLUGINS_TAG]} | each for method, each in operations.items()}
        paths[path] = {**tagged, **paths.get(path, {})}
    used = {tag for operations in paths.values() for each in operations.values() for tag in each["tags"]}
    return _DOCUMENT | {
        "paths": paths,
        "tags": [*_DOCUMENT["tags"], *({"name": tag} for tag in sorted(used - set(TAGS)))],
    }


def _described(path: str, operation: Schema) -> Schema:
    name = operation["operationId"]
    return with_examples(operation, REQUESTS.get(name), ANSWERS.get(name)) | {"tags": [tag_of(path)]}


async def openapi(request: Request) -> Response:
    """The document. It needs no key. Its server is the address of the request."""
    servers = [{"url": str(request.base_url).rstrip("/"), "description": "This server."}]
    return JSONResponse(request.app.state.openapi | {"servers": servers})
