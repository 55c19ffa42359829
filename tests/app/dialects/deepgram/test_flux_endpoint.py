"""Deepgram's `/v2/listen` on a real server: keys, refusals, raw audio and containers."""

import json
import logging
import uuid
from typing import Any
from urllib.parse import urlencode

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.app.conftest import Running, Serve, receive_all, refusal, until
from tests.app.dialects.deepgram.test_endpoint import TALK, TEXT, check_refusal
from tests.app.dialects.deepgram.test_flux_wire import check_states
from tests.app.media.test_file_decoder import encode
from tests.compat.asyncapi import flux_problems
from tests.compat.conformance import supported
from tests.fakes import pcm

FLUX = "deepgram-flux"
RAW = {"model": "flux-general-en", "encoding": "linear32", "sample_rate": "16000"}


def flux_url(server: Running, **query: str) -> str:
    return f"ws://{server.address}/v2/listen?{urlencode(query)}"


async def messages(socket: ClientConnection) -> list[dict[str, Any]]:
    """All messages of the server, until it closes: they are valid, and numbered in the order in which they come."""
    told = await receive_all(socket)
    assert [problem for message in told for problem in flux_problems(message)] == []
    assert [message["sequence_id"] for message in told] == list(range(len(told)))
    return told


def transcript(told: list[dict[str, Any]]) -> str:
    turns = [each for each in told if each["type"] == "TurnInfo"]
    check_states(turns)
    return " ".join(each["transcript"] for each in turns if each["event"] == "EndOfTurn")


async def test_a_stream_of_turns(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    """Answers to the client are numbered together with the news of the turns. The log has the id that they name."""
    caplog.set_level(logging.INFO)
    async with connect(flux_url(server, **RAW)) as socket:
        assert socket.response is not None
        for at in range(0, len(TALK), 1600):
            await socket.send(pcm(TALK[at : at + 1600]))
            if at % 16_000 == 0:
                await socket.send(json.dumps({"type": "Configure", "keyterms": [f"word{at}"]}))
        await socket.send(json.dumps({"type": "CloseStream"}))
        told = await messages(socket)
        assert (socket.close_code, transcript(told)) == (1000, TEXT)
        assert told[0]["type"] == "Connected"
        assert {each["request_id"] for each in told} == {socket.response.headers["dg-request-id"]}
        assert uuid.UUID(told[0]["request_id"])
        logged = f"[{socket.response.headers['x-request-id']}] its client knows it as {told[0]['request_id']}"
        assert logged in caplog.text


@supported(FLUX, "no encoding (WAV, Ogg, WebM, MP3, FLAC are recognised)")
async def test_containers_are_recognised(server: Running) -> None:
    """What is none ends the stream."""
    for content in (encode("flac", "flac", 16_000, TALK), b"this is no audio at all " * 4000):
        async with connect(flux_url(server, model="flux-general-en")) as socket:
            for at in range(0, len(content), 5000):
                await socket.send(content[at : at + 5000])
            await socket.send(json.dumps({"type": "CloseStream"}))
            told = await messages(socket)
            if content.startswith(b"fLaC"):
                assert transcript(told) == TEXT
            else:
                assert (told[-1]["type"], told[-1]["code"], socket.close_code) == ("Error", "BAD_MEDIA", 1008)


async def test_a_query_is_answered_before_the_upgrade(server: Running) -> None:
    """With an error, or with the names of what is ignored or adjusted."""
    for query in ({}, {**RAW, "eot_threshold": "2"}, {**RAW, "redact": "names"}):
        check_refusal(await refusal(flux_url(server, **query)), 400, "INVALID_QUERY_PARAMETER")
    async with connect(flux_url(server, **RAW, tag="a", keyterm="x" * 50)) as socket:
        assert socket.response is not None
        assert socket.response.headers["x-tutti-ignored"] == "tag"
        assert socket.response.headers["x-tutti-adjusted"] == "keyterm=0 of 1"


async def test_a_client_without_a_key_takes_a_place_with_a_message_that_is_right(serve: Serve) -> None:
    """Not with one that is refused."""
    server = await serve(max_sessions=1)
    async with connect(flux_url(server, **RAW)) as socket:
        await socket.send(json.dumps({"type": "Configure", "thresholds": 1}))
        await until(socket, "ConfigureFailure")
        assert server.service.admission.sessions == set()
