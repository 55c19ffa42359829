"""The published OpenAPI document is complete, and true of the real application."""

import ast
import asyncio
import errno
import re
import threading
from typing import Any

import hypothesis
import jsonschema_rs
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import Route

from tests.app.conftest import Running, Serve
from tests.app.dialects.openai.test_files_endpoint import TALK, sse, wav
from tests.app.dialects.test_file_speakers import embed
from tests.app.server.test_asyncapi import strict
from tests.app.service.test_models import Shelf, models
from tests.fakes import FakeTranscriber, silence, speech
from tests.made_files import Track, made_file
from tutti_server.app.dialects.deepgram import options as deepgram
from tutti_server.app.dialects.deepgram.query import Query
from tutti_server.app.dialects.openai import files_wire
from tutti_server.app.dialects.openai.form import Form
from tutti_server.app.errors import BadStart, RequestError
from tutti_server.app.files.uploads import refusing_without_resources
from tutti_server.app.server.openapi import ANY_OBJECT, DEEPGRAM_PARAMETERS, FORM, document
from tutti_server.app.server.openapi_examples import REQUESTS
from tutti_server.app.server.plugins import installed_plugins
from tutti_server.app.server.routes import routes
from tutti_server.app.voices.speaker_clustering import SpeakerThresholds
from tutti_server.app.voices.speaker_model import SpeakerModel

LONG_TALK = np.concatenate((TALK, silence(1.5), speech([4, 5])))
"""Two utterances. An engine that loses words leaves speech without text in the first one."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = hypothesis.settings(
    max_examples=3,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
PLUGINS = installed_plugins()
DOCUMENT = document(plugin.openapi() for plugin in PLUGINS)
PATHS = DOCUMENT["paths"]
PAGES = ("/", "/calls", "/docs", "/docs/viewer.js", "/service-worker.js")
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)


async def test_every_route_over_http_is_described(serve: Serve) -> None:
    """The page and its files are for browsers alone."""
    service = (await serve()).service
    served = [*routes(), *(route for plugin in PLUGINS for route in plugin.routes(service))]
    expected = {
        (re.sub(r":\w+", "", route.path), method.lower())
        for route in served
        if isinstance(route, Route) and route.path not in PAGES
        for method in route.methods or {"POST"}
        if method != "HEAD"
    }
    assert {(path, method) for path, operations in PATHS.items() for method in operations} == expected


@pytest.fixture
def one_parser_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one thread at a time parse Python: that of the generated requests, or that of the server.

    CPython 3.11 keeps the depth of the tree in one place for all threads: of two, one fails with "AST constructor
    recursion depth mismatch". Parsers are imports under pytest, Hypothesis, and tracebacks of the log.
    """
    lock, parse = threading.RLock(), ast.parse

    def parse_alone(*arguments: Any, **options: Any) -> Any:
        with lock:
            return parse(*arguments, **options)

    monkeypatch.setattr(ast, "parse", parse_alone)


@pytest.mark.usefixtures("one_parser_at_a_time")
async def test_answers_are_as_described(server: Running) -> None:
    """Of requests that follow the document, and of others."""
    for path, operations in PATHS.items():
        for method, operation in operations.items():
            modes = list(GenerationMode) if "requestBody" in operation else [GenerationMode.POSITIVE]
            for mode in modes:
                cases = SCHEMA[path][method.upper()].as_strategy(generation_mode=mode)
                await asyncio.to_thread(send_requests, server.http, cases)


def send_requests(address: str, cases: SearchStrategy[Case[Any]]) -> None:
    """Send generated requests, and check the answers."""

    @EXAMPLES
    @hypothesis.given(case=cases)
    def check(case: Case[Any]) -> None:
        case.call_and_validate(base_url=address, checks=CHECKS)

    check()


COMPONENTS = {"components": strict(DOCUMENT["components"])}


def check_fully_described(value: Any, schema: Any) -> None:
    """Fail if the value has a field that is not described, or lacks one that is required."""
    jsonschema_rs.Draft202012Validator(strict(schema) | COMPONENTS).validate(value)


def described(path: str, media_type: str) -> Any:
    """The schema of the successful answer to a POST."""
    return PATHS[path]["post"]["responses"]["200"]["content"][media_type]["schema"]


WORDS, STREAM = {"timestamp_granularities[]": "word"}, {"stream": "true"}
VERBOSE = {"response_format": "verbose_json"}
DIARIZED = {"response_format": "diarized_json"}


@pytest.mark.parametrize(
    "form",
    [
        *({}, {"unknown": "x"}, {"include[]": "logprobs"}, VERBOSE, VERBOSE | WORDS),
        *({"response_format": name} for name in ("text", "srt", "vtt", "call_record")),
        *(STREAM, STREAM | {"include[]": "logprobs"}, STREAM | VERBOSE, STREAM | VERBOSE | WORDS),
        *(DIARIZED, DIARIZED | WORDS, DIARIZED | STREAM, {"tracks": "all"}, {"tracks": "all"} | VERBOSE),
    ],
    ids=str,
)
async def test_no_field_of_a_transcript_is_left_out(serve: Serve, form: dict[str, str]) -> None:
    """Nor of the events of streams; they are asked for by values that are described, too."""
    server = await serve(FakeTranscriber(lost=range(4)))
    server.service.speaker_model = SpeakerModel(embed, SpeakerThresholds(joins=0.5, knows=0.6))
    assert form.get("response_format", "json") in FORM["properties"]["response_format"]["enum"]
    path = "/v1/audio/transcriptions"
    answer = await server.post(path, data=form, files={"file": wav(LONG_TALK)})
    media_type = answer.headers["content-type"].partition(";")[0]
    schema = described(path, media_type)
    if media_type == "application/json":
        check_fully_described(answer.json(), schema)
    for message in sse(answer) if media_type == "text/event-stream" else ():
        check_fully_described(message, schema["properties"]["data"]["contentSchema"])
    headers = PATHS[path]["post"]["responses"]["200"]["headers"]
    assert {name for name in answer.headers if name.startswith("x-tutti")} <= headers.keys()


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"smart_format": "true", "utterances": "true", "language": "multi", "unknown": "x", "extra": "a:b"},
        {"detect_language": "true", "multichannel": "true"},
        {"diarize": "true", "max_speakers": "2", "utterances": "true", "paragraphs": "true", "search": "w1"},
    ],
    ids=str,
)
async def test_no_field_of_a_transcript_of_deepgram_is_left_out(serve: Serve, query: dict[str, str]) -> None:
    server = await serve(FakeTranscriber(lost=range(4)))
    server.service.speaker_model = SpeakerModel(embed, SpeakerThresholds(joins=0.5, knows=0.6))
    assert query.keys() - {"unknown"} <= {each["name"] for each in DEEPGRAM_PARAMETERS}
    answer = await server.post("/v1/listen", params=query, content=wav(LONG_TALK))
    check_fully_described(answer.json(), described("/v1/listen", "application/json"))


async def test_no_field_of_a_session_or_a_token_is_left_out(server: Running) -> None:
    for path in ("/v1/realtime/client_secrets", "/v1/realtime/transcription_sessions", "/v1/auth/grant"):
        check_fully_described((await server.post(path)).json(), described(path, "application/json"))


async def test_the_header_of_warnings_is_described(server: Running) -> None:
    content = made_file("matroska", "pcm_s16le", 16_000, [Track(samples=TALK), Track(samples=TALK)])
    answer = await server.post("/v1/audio/transcriptions", files={"file": content})
    found = {name for name in answer.headers if name.startswith("x-tutti")}
    headers = PATHS["/v1/audio/transcriptions"]["post"]["responses"]["200"]["headers"].keys()
    assert {"x-tutti-warnings"} <= found <= headers


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/audio/translations", "/v1/jobs"])
def test_refusals_of_recordings_are_described(path: str) -> None:
    """That of a model which is not served, and that of a server without room on its disk."""
    with pytest.raises(RequestError) as unknown:
        models(Shelf()).requested("small")
    with pytest.raises(RequestError) as full, refusing_without_resources():
        raise OSError(errno.ENOSPC, "full")
    assert {str(each.value.status) for each in (unknown, full)} <= PATHS[path]["post"]["responses"].keys()


def test_every_field_of_a_form_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the code reads, but for what it refuses."""
    read: set[str] = set()

    class ReadForm(Form):
        def texts(self, name: str) -> tuple[str, ...]:
            read.add(name)
            return super().texts(name)

    monkeypatch.setattr("tutti_server.app.dialects.openai.files_wire.Form", ReadForm)
    files_wire.parse_options([], "transcribe")
    known = {name.removesuffix("[]") for name in FORM["properties"]} - {"file"}
    assert known <= read
    for name in read - known:
        with pytest.raises(RequestError, match="not offered"):
            files_wire.parse_options([(name, "x")], "transcribe")


def test_every_parameter_of_deepgram_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()

    class ReadQuery(Query):
        def texts(self, name: str) -> list[str]:
            read.add(name)
            return super().texts(name)

    monkeypatch.setattr(deepgram, "Query", ReadQuery)
    deepgram.parse([("diarize", "true")], ("en",), is_live=False, tells_speakers=True)
    deepgram.parse([("encoding", "linear16"), ("sample_rate", "8000")], ("en",), is_live=False)
    known = {each["name"] for each in DEEPGRAM_PARAMETERS}
    assert known <= read
    for name in read - known:
        with pytest.raises(BadStart):
            deepgram.parse([(name, "x")], ("en",), is_live=False)


async def test_the_document_is_served_without_a_key(serve: Serve) -> None:
    """It names the address of the request as its server."""
    server = await serve(api_keys="k")
    response = await server.get("/openapi.json")
    assert response.json() == DOCUMENT | {"servers": [{"url": server.http, "description": "This server."}]}


def test_every_operation_has_a_tag_and_examples() -> None:
    """Each example is one of its schema; the recording of a form stands in none."""
    described: list[str] = []
    tags = {each["name"] for each in DOCUMENT["tags"]}
    for operations in PATHS.values():
        for operation in operations.values():
            assert set(operation["tags"]) <= tags
            contents = [each["content"] for status, each in operation["responses"].items() if status < "300"]
            if "requestBody" in operation:
                contents.append(operation["requestBody"]["content"])
                described.append(operation["operationId"])
            for content in contents:
                for kind in {"application/json", "multipart/form-data"} & content.keys():
                    schema = content[kind]["schema"]
                    if schema == ANY_OBJECT:
                        continue
                    example = content[kind]["example"]
                    whole = {"file": ""} | example if kind == "multipart/form-data" else example
                    jsonschema_rs.Draft202012Validator(schema | COMPONENTS).validate(whole)
    assert set(REQUESTS) <= set(described)


async def test_the_page_of_the_document_is_served_with_its_viewer(server: Running) -> None:
    """Compressed as it is stored, or plain for those that do not decompress."""
    page = await server.get("/docs")
    answers = [
        await server.get("/docs/viewer.js", headers={"accept-encoding": encoding})
        for encoding in ("gzip, br", "identity")
    ]
    assert "/docs/viewer.js" in page.text and "'unsafe-inline'" in page.headers["content-security-policy"]
    assert [each.headers.get("content-encoding") for each in answers] == ["gzip", None]
    assert answers[0].text == answers[1].text
    assert {each.headers["content-type"] for each in answers} == {"text/javascript; charset=utf-8"}
