"""Translations over real connections: a server, a chat endpoint that answers when the test wants, and the client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np

import tutti
from tests.app.conftest import Serve
from tests.app.translation.test_chat_translator import StandIn, chat, echo
from tests.fakes import MODEL, FakeTranscriber, pcm, silence, speech

GERMAN: tutti.ConnectOptions = {
    "translate": ["en", "fr"],
    "language": "de",
    "encoding": "pcm_f32le",
    "interim": False,
    "endpointing": "vad",
}
TRANSLATES = replace(MODEL, tasks=("transcribe", "translate"))


class Endpoint:
    """A chat endpoint that translates every text to its capital letters, while it `answers`."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.texts: list[str] = []
        self.bad_answers: list[str] = []
        """Answers in place of the next translations."""
        self._came = asyncio.Event()

    async def has_texts(self, n: int) -> None:
        """Wait until this many texts have come."""
        while len(self.texts) < n:
            self._came.clear()
            await self._came.wait()

    async def _reply(self, request: dict[str, Any]) -> bytes:
        self.texts.append(request["messages"][-1]["content"])
        self._came.set()
        await self.answers.wait()
        return chat(self.bad_answers.pop()) if self.bad_answers else await echo(request)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[dict[str, Any]]:
        """Serve, and give the settings of a server that uses it."""
        async with StandIn(self._reply).running() as url:
            yield {"translate_url": url, "translate_model": "m", "translate_languages": "fr"}
            self.answers.set()


def talk(*numbers: int) -> bytes:
    return pcm(np.concatenate((speech(numbers), silence(0.7))))


def made(events: list[tutti.Event]) -> list[tuple[int, str, str]]:
    return [(each.utterance, each.language, each.text) for each in events if isinstance(each, tutti.Translation)]


async def test_a_session_outlives_an_answer_that_no_message_can_hold(serve: Serve) -> None:
    """Half a surrogate pair can be escaped in JSON, but not be sent. The text has no translation; the next one does."""
    endpoint = Endpoint()
    endpoint.bad_answers.append("Hallo \ud83d")
    async with endpoint.running() as settings:
        server = await serve(FakeTranscriber(info=TRANSLATES), **settings)
        async with tutti.connect(f"http://{server.address}", **GERMAN | {"translate": ["fr"]}) as session:
            await session.send(talk(1, 2))
            await session.send(talk(3, 4))
            await session.stop()
            events = [event async for event in session]
    assert made(events) == [(1, "fr", "W3 W4")]
    assert isinstance(events[-1], tutti.Stopped)


async def test_a_lost_connection_loses_and_repeats_no_translation(serve: Serve) -> None:
    """The text was final, and its translations under way: the next session makes those that are missing."""
    endpoint = Endpoint()
    async with endpoint.running() as settings:
        server = await serve(FakeTranscriber(info=TRANSLATES), **settings)
        events: list[tutti.Event] = []
        async with tutti.connect(f"http://{server.address}", **GERMAN) as session:
            await session.send(talk(1, 2))
            while made(events) != [(0, "en", "e1 e2"), (0, "fr", "W1 W2")]:
                events.append(await anext(session))
            endpoint.answers.clear()
            await session.send(talk(3, 4))
            while made(events)[2:] != [(1, "en", "e3 e4")]:
                events.append(await anext(session))
            # The French one is still under way.
            await endpoint.has_texts(2)
            connection = session._connection._connection
            assert connection
            connection.abort()
            while not isinstance(events[-1], tutti.Resumed):
                events.append(await anext(session))
            endpoint.answers.set()
            await session.send(talk(5))
            await session.stop()
            events += [event async for event in session]
    assert isinstance(events[-1], tutti.Stopped)
    assert sorted(made(events)) == [
        (0, "en", "e1 e2"),
        (0, "fr", "W1 W2"),
        (1, "en", "e3 e4"),
        (1, "fr", "W3 W4"),
        (2, "en", "e5"),
        (2, "fr", "W5"),
    ]
    texts = [each.text for each in events if isinstance(each, tutti.Utterance)]
    assert texts == ["w1 w2", "w3 w4", "w5"]
    assert endpoint.texts == ["w1 w2", "w3 w4", "w3 w4", "w5"]
