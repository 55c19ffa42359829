"""The published OpenAPI document is complete, and true of the real application."""

import asyncio
from typing import Any

import httpx
import hypothesis
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

from app.openapi import DOCUMENT, PATHS
from app.routes import routes
from tests.app.conftest import Serve
from tests.app.dialects.openai.test_files_endpoint import TALK, wav

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = hypothesis.settings(
    max_examples=5,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)


def test_every_route_over_http_is_described() -> None:
    """The page and its files are for browsers alone."""
    expected = {
        (route.path.replace(":path", ""), method.lower())
        for route in routes()
        if isinstance(route, Route) and route.path != "/"
        for method in route.methods or {"POST"}
        if method != "HEAD"
    }
    assert {(path, method) for path, operations in PATHS.items() for method in operations} == expected


async def test_answers_are_as_described(serve: Serve) -> None:
    """Of requests that follow the document, and of others."""
    server = await serve()
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


FORMS: list[dict[str, str]] = [
    {},
    {"include[]": "logprobs"},
    {"response_format": "verbose_json"},
    {"response_format": "verbose_json", "timestamp_granularities[]": "word"},
    {"response_format": "text"},
    {"response_format": "srt"},
    {"response_format": "vtt"},
    {"stream": "true"},
]
QUERIES: list[dict[str, str]] = [
    {},
    {"smart_format": "true", "utterances": "true", "language": "multi", "unknown": "x"},
    {"detect_language": "true", "multichannel": "true"},
]


async def test_transcripts_are_as_described(serve: Serve) -> None:
    """In every format, which generated requests do not reach, as their files are no audio."""
    server = await serve()
    transcribe: Any
    listen: Any
    transcribe, listen = SCHEMA["/v1/audio/transcriptions"]["POST"], SCHEMA["/v1/listen"]["POST"]
    audio = wav(TALK)
    cases = [
        *(transcribe.Case(body={"file": audio, **form}, media_type="multipart/form-data") for form in FORMS),
        *(listen.Case(body=audio, query=query, media_type="application/octet-stream") for query in QUERIES),
    ]
    for case in cases:
        response = await asyncio.to_thread(case.call_and_validate, base_url=server.http, checks=CHECKS)
        assert response.status_code == 200, response.text


async def test_the_document_is_served_without_a_key(serve: Serve) -> None:
    server = await serve(api_keys="k")
    async with httpx.AsyncClient() as client:
        response = await client.get(f"{server.http}/openapi.json")
    assert response.json() == DOCUMENT
