"""Recorded HTTP exchanges: what a vendor's SDK sent, and what the service answers, replayed without a network."""

import asyncio
import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message

GOLDEN = Path(__file__).parent / "golden"
# The rest is of the moment, or of the machine that it was recorded on.
REQUEST_HEADERS = ("accept", "authorization", "content-type", "content-length", "transfer-encoding")
ANSWER_HEADERS = ("content-type", "x-tutti-ignored", "x-tutti-model")
LINE_CHARS = 200
"""The longest value of several parts that stands in one line of a file."""


@dataclass(frozen=True)
class Request:
    """As the server reads it; the body in the pieces in which it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: list[bytes]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: Any
    """Text, JSON, or a list of streamed events."""


def read(path: Path, answered: Path) -> tuple[Request, Answer]:
    """The request of one file, and the answer of another, as several SDKs are answered alike."""
    request, answer = json.loads(path.read_text())["request"], json.loads(answered.read_text())["answer"]
    body = [base64.b64decode(piece) for piece in request.pop("body")]
    return Request(**request, body=body), Answer(**answer)


def write(path: Path, client: str, request: Request, answer: Answer | None) -> None:
    body = [base64.b64encode(piece).decode() for piece in request.body]
    stored: dict[str, Any] = {"client": client, "request": {**vars(request), "body": body}}
    if answer:
        stored["answer"] = vars(answer)
    path.write_text(_laid_out(stored) + "\n")


def _laid_out(value: Any, indent: str = "\n") -> str:
    """JSON in which whatever fits into a line is a line."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= LINE_CHARS or not isinstance(value, dict | list):
        return text
    inner = indent + " "
    if isinstance(value, list):
        return f"[{inner}{f',{inner}'.join(_laid_out(each, inner) for each in value)}{indent}]"
    parts = (f"{json.dumps(name)}: {_laid_out(each, inner)}" for name, each in value.items())
    return f"{{{inner}{f',{inner}'.join(parts)}{indent}}}"


async def replay(app: ASGIApp, request: Request) -> Answer:
    """What the application answers."""
    pieces = [{"type": "http.request", "body": body, "more_body": True} for body in request.body]
    incoming: list[Message] = [*pieces, {"type": "http.request", "body": b"", "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        # The client stays.
        return incoming.pop(0) if incoming else await asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(name.encode(), value.encode()) for name, value in request.headers.items()]
    path = {"path": request.path, "raw_path": request.path.encode(), "root_path": "", "query_string": b""}
    await app(
        {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "app": app}
        | {"method": request.method, "headers": headers, **path},
        receive,
        send,
    )
    start, *rest = sent
    answered = {name.decode(): value.decode() for name, value in start["headers"]}
    body = b"".join(message.get("body", b"") for message in rest).decode()
    kept = {name: answered[name] for name in ANSWER_HEADERS if name in answered}
    return Answer(start["status"], kept, _read_body(kept["content-type"], body))


def _read_body(content_type: str, body: str) -> Any:
    if content_type.startswith("application/json"):
        return json.loads(body)
    if content_type.startswith("text/event-stream"):
        return [json.loads(frame.removeprefix("data: ")) for frame in body.split("\n\n") if frame]
    return body
