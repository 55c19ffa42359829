"""Streamed transcriptions of an OpenAI-compatible endpoint: the time to their first text, and what they say in all.

The events are OpenAI's: `transcript.text.delta`, then `transcript.text.done` with the whole text.
"""

import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.files.endpoint import MAX_ERROR_CHARS, PATH, Answer, Endpoint
from benchmarks.report import Table, number
from benchmarks.scoring import percentile

DONE = "[DONE]"
"""The data of an event with which some endpoints end a stream."""


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """The result of one streamed request."""

    text: str
    """The text of the last event."""
    latency_s: float
    """Seconds from the first byte sent to the last byte received."""
    first_delta_s: float | None = None
    """Seconds from the first byte sent to the first delta with text; `None` if none came."""
    failure: str | None = None
    """Why there is no text, or why its deltas are not this text."""


async def transcribe_streamed(endpoint: Endpoint, audio: bytes, filename: str, language: str | None) -> StreamedAnswer:
    """Send one request with `stream=true`. Errors are returned in the answer, not raised."""
    data = {"model": endpoint.model, "response_format": "json", **endpoint.fields, "stream": "true"}
    if language:
        data["language"] = language
    started_at = time.perf_counter()
    first_delta_s: float | None = None
    deltas: list[str] = []
    text: str | None = None
    failure: str | None = None
    try:
        async with endpoint.client.stream("POST", PATH, data=data, files={"file": (filename, audio)}) as response:
            if not response.is_success:
                excerpt = (await response.aread()).decode(errors="replace")[:MAX_ERROR_CHARS]
                failure = f"HTTP {response.status_code}: {excerpt}"
            else:
                async for event in _events(response):
                    match event:
                        case {"type": "transcript.text.delta", "delta": str(delta)}:
                            deltas.append(delta)
                            if delta.strip() and first_delta_s is None:
                                first_delta_s = time.perf_counter() - started_at
                        case {"type": "transcript.text.done", "text": str(whole)}:
                            text = whole
                        case {"error": error}:
                            failure = f"error event: {error}"[:MAX_ERROR_CHARS]
    except (httpx.HTTPError, ValueError) as error:
        failure = f"{type(error).__name__}: {error}"
    latency_s = time.perf_counter() - started_at
    if failure is None and text is None:
        failure = "expected a transcript.text.done at the end of the stream, got none"
    if failure is None and "".join(deltas).strip() != (text or "").strip():
        failure = f"expected deltas that make up {text!r}, got {''.join(deltas)!r}"
    return StreamedAnswer(text or "", latency_s, first_delta_s, failure)


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events.

    Raises:
        ValueError: the data of an event is not a JSON object.
    """
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == DONE:
            continue
        event = json.loads(data)
        if not isinstance(event, dict):
            raise ValueError(f"expected events with a JSON object, got {data[:MAX_ERROR_CHARS]!r}")
        yield event


def streamed_result(
    whole: Sequence[Answer], streamed: Sequence[StreamedAnswer], names: Sequence[str]
) -> dict[str, Any]:
    """The figures of one level of streamed requests, beside the answers to the same requests without a stream."""
    complete = [answer for answer in streamed if not answer.failure]
    firsts_s = [answer.first_delta_s for answer in complete if answer.first_delta_s is not None]
    return {
        "answered": len(complete),
        "failures": [answer.failure for answer in streamed if answer.failure],
        "first_delta_s": {"median": percentile(firsts_s, 50), "p95": percentile(firsts_s, 95)},
        "latency_s": {
            "median": percentile([answer.latency_s for answer in complete], 50),
            "p95": percentile([answer.latency_s for answer in complete], 95),
        },
        "differences": [
            {"name": name, "whole": one.text, "streamed": other.text}
            for name, one, other in zip(names, whole, streamed, strict=True)
            if not (one.failure or other.failure) and one.text.strip() != other.text.strip()
        ],
    }


def streamed_table(levels: Sequence[dict[str, Any]]) -> Table:
    """The table of all levels."""
    rows = [
        (
            str(level["concurrency"]),
            *(number(level["streamed"]["first_delta_s"][name], 3) for name in ("median", "p95")),
            *(number(level["streamed"]["latency_s"][name], 3) for name in ("median", "p95")),
            str(len(level["streamed"]["differences"])),
            str(len(level["streamed"]["failures"])),
        )
        for level in levels
    ]
    return Table(
        "The same recordings streamed (seconds)",
        (
            "requests\nat a time",
            "first delta\nmedian",
            "first delta\np95",
            "all\nmedian",
            "all\np95",
            "other text\nthan whole",
            "failed",
        ),
        rows,
    )


def streamed_remarks(levels: Sequence[dict[str, Any]], n_shown: int) -> list[str]:
    """What went wrong at each level: the first failures and differences."""
    return [
        f"{level['concurrency']} at a time, streamed: {what}"
        for level in levels
        for what in [
            *level["streamed"]["failures"][:n_shown],
            *(
                f"{each['name']}: expected {each['whole']!r} as without a stream, got {each['streamed']!r}"
                for each in level["streamed"]["differences"][:n_shown]
            ),
        ]
    ]
