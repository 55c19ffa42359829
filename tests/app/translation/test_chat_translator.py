"""Translations by a chat endpoint: a real local server that is slow, refuses, answers garbage, or hangs."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tutti_server.app.errors import TranslationFailed
from tutti_server.app.session.core.effects import Translate
from tutti_server.app.translation.chat_endpoint import MAX_ANSWER_BYTES, ChatEndpoint
from tutti_server.app.translation.chat_translator import ChatTranslator
from tutti_server.app.translation.prompt import messages, new_context, read_answer


class StandIn:
    """A server in place of the operator's. It answers a request by `reply`, from the body of the request."""

    def __init__(self, reply: Callable[[dict[str, Any]], Awaitable[bytes]]) -> None:
        self.reply = reply
        self.requests: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.n_open = 0
        self.max_open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(int(line.split(":")[1]) for line in head.lower().split("\r\n") if "content-length" in line)
            request = json.loads(await reader.readexactly(length))
            self.heads.append(head)
            self.requests.append(request)
            self.n_open += 1
            self.max_open = max(self.max_open, self.n_open)
            try:
                writer.write(await self.reply(request))
                await writer.drain()
            finally:
                self.n_open -= 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve, and give the address of the API."""
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def http(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{headers}\r\n".encode() + body


def chat(text: object, reason: str = "stop") -> bytes:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": reason}
    return http(json.dumps({"choices": [choice]}).encode())


async def echo(request: dict[str, Any]) -> bytes:
    """The text in capital letters stands for its translation."""
    return chat(request["messages"][-1]["content"].upper())


@asynccontextmanager
async def translating(
    stand_in: StandIn, *, timeout_s: float = 10.0, attempt_s: float = 5.0, max_requests: int = 4, key: str = ""
) -> AsyncIterator[tuple[ChatTranslator, list[str]]]:
    """A translator that asks this server, and the outcomes that it counts."""
    outcomes: list[str] = []
    async with stand_in.running() as url:
        endpoint = ChatEndpoint(url, "small", key, max_requests, attempt_timeout_s=attempt_s, sleep=_at_once)
        translator = ChatTranslator(endpoint, ("de",), timeout_s, outcomes.append)
        async with translator.running():
            yield translator, outcomes


async def _at_once(_: float) -> None:
    """Do not wait between attempts."""


def text(content: str, channel: int = 0, language: str = "de") -> Translate:
    return Translate(id=0, channel=channel, language=language, source="en", text=content)


async def test_a_text_is_translated_with_those_before_it_as_context() -> None:
    """The request is one of OpenAI's chat API, with the operator's model and key."""
    stand_in = StandIn(echo)
    async with translating(stand_in, key="secret") as (translator, outcomes):
        session = translator.open()
        assert [await session.translate(text(each)) for each in ("one", "two")] == ["ONE", "TWO"]
        await session.translate(text("other channel", channel=1))
        await translator.open().translate(text("other session"))
    first, second, *others = (request["messages"] for request in stand_in.requests)
    assert "English" in first[0]["content"] and "German" in first[0]["content"] and first[1:] == [
        {"role": "user", "content": "one"}
    ]  # fmt: skip
    assert [each["content"] for each in second[1:]] == ["one", "ONE", "two"]
    assert all(len(each) == 2 for each in others), "no other speaker's text"
    assert stand_in.requests[0]["model"] == "small"
    assert stand_in.heads[0].startswith("POST /v1/chat/completions")
    assert "authorization: bearer secret" in stand_in.heads[0].lower()
    assert outcomes == ["translated"] * 4


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("/v1/", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1?version=2", "/v1/chat/completions?version=2"),
        ("/v1/chat/completions?version=2", "/v1/chat/completions?version=2"),
    ],
)
async def test_the_address_is_that_of_the_api_or_of_the_endpoint(address: str, asked: str) -> None:
    """Either may have a query, as vendors have that name the version of their API in it."""
    paths: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path.decode())
        return httpx.Response(200, json={})

    transport = httpx.MockTransport(answer)
    endpoint = ChatEndpoint(f"http://host{address}", "small", "", 1, attempt_timeout_s=5.0, transport=transport)
    async with endpoint.running():
        await endpoint.ask([])
    assert paths == [asked]


async def test_order_is_kept_and_requests_at_a_time_are_limited() -> None:
    """A session sends one text of a language at a time; the process as many as the operator allows."""
    held, begun = asyncio.Event(), asyncio.Event()

    async def reply(request: dict[str, Any]) -> bytes:
        if stand_in.n_open == 2:
            begun.set()
        await held.wait()
        return await echo(request)

    stand_in = StandIn(reply)
    async with translating(stand_in, max_requests=2) as (translator, _), asyncio.TaskGroup() as tasks:
        sessions = [translator.open() for _ in range(3)]
        made = [tasks.create_task(each.translate(text(f"{at}"))) for each in sessions for at in range(3)]
        await begun.wait()
        held.set()
    assert [each.result() for each in made] == ["0", "1", "2"] * 3
    assert stand_in.max_open == 2
    asked = [len(request["messages"]) for request in stand_in.requests]
    assert sorted(asked) == [2, 2, 2, 4, 4, 4, 6, 6, 6], "each text was sent after the answer to the one before"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (http(b"", "401 Unauthorized"), "status 401"),
        (http(b"", "302 Found", "location: http://elsewhere/\r\n"), "status 302"),
        (http(b"<html>"), "else than JSON"),
        (http(b"[" * 100_000), "else than JSON"),
        (http(b'{"choices": []}'), "no chat answer"),
        (chat(None), "no chat answer"),
        (chat(" \n "), "empty answer"),
        (chat("cut", "length"), "cut its answer off"),
        (chat("Hallo \ud83d"), "half a character"),
        (chat("x" * 2000), "2000 characters, expected at most"),
        (chat("x" * (MAX_ANSWER_BYTES + 1)), "more than 262144 bytes"),
    ],
)
async def test_an_answer_that_is_no_translation_fails_at_once(answer: bytes, reason: str) -> None:
    """It would come again, so it is not asked for again. The next text is translated."""
    answers = [answer]

    async def reply(request: dict[str, Any]) -> bytes:
        return answers.pop() if answers else await echo(request)

    stand_in = StandIn(reply)
    async with translating(stand_in) as (translator, outcomes):
        session = translator.open()
        with pytest.raises(TranslationFailed, match=reason):
            await session.translate(text("one"))
        assert await session.translate(text("two")) == "TWO"
    assert outcomes == ["failed", "translated"] and len(stand_in.requests) == 2


@pytest.mark.parametrize("status", ["503 Service Unavailable", "429 Too Many Requests"])
async def test_what_may_pass_is_tried_again(status: str) -> None:
    """Three times at most."""
    answers = [http(b"", status), http(b"", status)]

    async def reply(request: dict[str, Any]) -> bytes:
        return answers.pop() if answers else await echo(request)

    stand_in = StandIn(reply)
    async with translating(stand_in) as (translator, _):
        assert await translator.open().translate(text("one")) == "ONE"
        answers += [http(b"", status)] * 3
        with pytest.raises(TranslationFailed, match="in each of 3 attempts"):
            await translator.open().translate(text("two"))
    assert len(stand_in.requests) == 6


async def test_an_endpoint_that_hangs_costs_its_texts_and_no_more() -> None:
    """Those that wait for their turn end with it: each at its own time limit. Nothing is left open."""
    hangs = asyncio.Event()

    async def reply(_: dict[str, Any]) -> bytes:
        await hangs.wait()
        return b""

    stand_in = StandIn(reply)
    async with translating(stand_in, timeout_s=0.3, attempt_s=0.2) as (translator, outcomes):
        session = translator.open()
        results = await asyncio.gather(*(session.translate(text("one")) for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in results] == [TranslationFailed] * 3
        assert "no translation within 0.3 s" in {str(each) for each in results}
        stand_in.reply = echo
        assert await session.translate(text("two")) == "TWO"
        hangs.set()
    assert outcomes == ["failed"] * 3 + ["translated"]


async def test_an_endpoint_that_is_not_there_fails_with_a_reason() -> None:
    """Also where nothing listens at its address."""
    endpoint = ChatEndpoint("http://127.0.0.1:9", "m", "", 1, attempt_timeout_s=5, sleep=_at_once)
    translator = ChatTranslator(endpoint, ("de",), 5.0)
    async with translator.running():
        with pytest.raises(TranslationFailed, match="cannot be reached: ConnectError"):
            await translator.open().translate(text("one"))


def test_a_long_context_is_left_out() -> None:
    """The prompt does not grow with the session."""
    context = new_context()
    context += [("text", "Text")] * 5
    assert len(messages("now", None, "fr", context)) == 1 + 2 * 3 + 1
    context.append(("x" * 1000, "y" * 1000))
    assert [each["role"] for each in messages("now", None, "fr", context)] == ["system", "user"]


def test_an_answer_becomes_one_line() -> None:
    """Captions have no paragraphs."""
    answer = {"choices": [{"message": {"content": " Guten\n\nTag. "}, "finish_reason": "stop"}]}
    assert read_answer(answer, "Good day.") == "Guten Tag."
