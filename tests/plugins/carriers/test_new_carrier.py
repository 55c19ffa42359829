"""A telephone system that nobody has written yet: one class and its messages, and the rest is done already."""

from collections.abc import Iterable
from typing import Any

import pytest
from starlette.routing import BaseRoute, WebSocketRoute
from websockets.asyncio.client import connect

from tests.app.conftest import Serve, receive_all
from tests.app.dialects.call_streams.sinks import FakeSink
from tests.app.dialects.twilio.test_endpoint import slowly, subscriber, texts
from tests.fakes import said
from tutti_server.app.dialects.call_streams.call_stream import CallStream
from tutti_server.app.dialects.call_streams.endpoint import CallEndpoint
from tutti_server.app.dialects.call_streams.wire import Call
from tutti_server.app.dialects.native.wire import messages
from tutti_server.app.errors import BadMessage, SessionError
from tutti_server.app.live.dialect import ClientMessage
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.server.plugins import Plugin
from tutti_server.app.service.service import Service


class Tin(CallStream):
    """Two tins and a string: `hello` describes the call, binary messages are its audio."""

    START = "hello"

    def _read(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        match fields:
            case {"hello": str(sid)}:
                self._require_new()
                self._sink.begin(Call(sid, sid, ("tin",)))
                return (self._begin(self._opening.parameters, AudioFormat("mulaw", 8000)),)
            case {"tug": n}:
                self._pass_on("tug", n=n)
                return ()
        raise BadMessage("unknown_type", "hello or tug", fields)


class YieldingTin(Tin):
    def _read(self, fields: dict[str, Any]) -> Iterable[ClientMessage]:
        yield from super()._read(fields)


class Tins(Plugin):
    name = "tins"

    def routes(self, service: Service) -> list[BaseRoute]:
        return [WebSocketRoute("/v1/tin/{token}", CallEndpoint(Tin, messages).serve)]


@pytest.mark.parametrize("kind", [Tin, YieldingTin])
def test_every_error_before_the_call_is_fatal(kind: type[CallStream]) -> None:
    """Otherwise a client without a key could hold a session with bad messages."""
    with pytest.raises(SessionError) as error:
        kind(FakeSink()).read('{"ring": 1}')
    assert error.value.is_fatal


async def test_its_calls_are_admitted_transcribed_and_followed(serve: Serve) -> None:
    server = await serve(api_keys="k", plugins=[Tins()])
    url = f"ws://{server.address}/v1/tin"
    async with subscriber(server.address, additional_headers={"Authorization": "Bearer k"}) as listener:
        async with connect(f"{url}/k?language=en", compression=None) as tin:
            await tin.send('{"hello": "CA1"}')
            await tin.send('{"tug": 2}')
            audio = slowly([1, 2])
            for at in range(0, len(audio), 160):
                await tin.send(audio[at : at + 160])
        heard = await receive_all(listener)
    assert [heard[0]["type"], heard[0]["tracks"], heard[-1]["type"]] == ["call_started", ["tin"], "call_ended"]
    assert {"type": "tug", "n": 2} in heard
    assert texts(heard, 0) == [said([1, 2])]
