"""Several models in one server: every protocol chooses one by its name."""

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from benchmarks.server import free_port
from tests.app.conftest import Running, Serve, receive, receive_all, refusal
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.app.dialects.openai.test_realtime_endpoint import UPDATE, append, opened
from tests.app.dialects.twilio.test_endpoint import call, subscriber
from tests.app.server.test_http_protocols import started
from tests.app.service.test_models import Shelf
from tests.fakes import pcm, said, silence, speech
from tests.plugins.wyoming.test_wyoming import wyoming
from tutti_server.app.dialects.deepgram.live_wire import Deepgram

TALK = np.concatenate((speech([1, 2, 3]), silence(0.8)))
RECORDING = wav(TALK)
UNKNOWN = "expected fake or large or big, got 'other'"


async def serving(serve: Serve, shelf: Shelf, **values: Any) -> Running:
    return await serve(further=[shelf.model], **values)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
async def server(serve: Serve, shelf: Shelf) -> Running:
    """A server with the model of the shelf as its second one."""
    return await serving(serve, shelf)


async def posted(server: Running, path: str = "/v1/audio/transcriptions", **fields: str) -> httpx.Response:
    return await server.post(path, files={"file": ("talk.wav", RECORDING)}, data=fields)


async def native(server: Running, **start: Any) -> list[dict[str, Any]]:
    """The messages of a session that has said one utterance."""
    async with connect(server.stream, subprotocols=[Subprotocol("tutti.v1")]) as socket:
        await socket.send(json.dumps({"type": "start", "audio": {"encoding": "pcm_f32le"}, **start}))
        await socket.send(pcm(TALK))
        await socket.send(json.dumps({"type": "stop"}))
        return await receive_all(socket)


async def test_a_file_is_transcribed_by_the_model_of_its_form(serve: Serve) -> None:
    """Another one is refused. One that nobody uses any more is given back, and loaded again."""
    shelf = Shelf()
    server = await serving(serve, shelf, model_idle_s=0.01)
    for name, answers in (("fake", "fake"), ("whisper-1", "fake"), ("big", "large")):
        answer = await posted(server, model=name)
        assert answer.json()["text"] == said([1, 2, 3]) and answer.headers["x-tutti-model"] == answers
        assert shelf.n_loads == (answers == "large")
    assert shelf.transcriber.windows
    answer = await posted(server, model="other")
    assert answer.status_code == 404 and UNKNOWN in answer.json()["error"]["message"]
    assert answer.json()["error"]["code"] == "model_not_found"
    await shelf.ended.wait()
    assert (await posted(server, model="large")).headers["x-tutti-model"] == "large" and shelf.n_loads == 2


async def test_the_model_of_a_form_is_read_as_its_other_fields(server: Running) -> None:
    """A client that names a model in a list must not get another one without a word."""
    answer = await posted(server, **{"model[]": "large"})
    assert answer.headers["x-tutti-model"] == "large"


async def test_a_file_whose_model_has_no_room_is_refused_for_now(serve: Serve) -> None:
    answer = await posted(await serving(serve, Shelf(needed_bytes=1)), model="large")
    assert answer.status_code == 503 and answer.json()["error"]["code"] == "overloaded"
    assert "large needs" in answer.json()["error"]["message"] and "retry-after" in answer.headers


async def test_the_list_has_all_models_and_says_which_is_the_default(server: Running) -> None:
    listed = (await server.get("/v1/models")).json()["data"]
    assert [(each["id"], each["root"], each["is_default"]) for each in listed] == [
        ("fake", "fake", True),
        ("whisper-1", "fake", True),
        ("large", "large", False),
        ("big", "large", False),
    ]
    assert (await server.get("/v1/models/big")).json() == listed[-1]
    assert (await server.get("/page/model")).json()["models"] == ["fake", "large"]
    assert (await server.get("/readyz")).text == "ready\n"


async def test_a_native_session_names_its_model(serve: Serve) -> None:
    """It waits for the loading, while a session with the first model goes on."""
    shelf = Shelf()
    shelf.may_load.clear()
    server = await serving(serve, shelf)
    waiting = asyncio.create_task(native(server, model="large"))
    await shelf.begun.wait()
    first = await native(server)
    assert first[0]["model"] == "fake" and not waiting.done()
    shelf.may_load.set()
    messages = await waiting
    assert messages[0]["type"] == "started" and messages[0]["model"] == "large"
    assert [each["text"] for each in messages if each["type"] == "utterance"] == [said([1, 2, 3])]
    assert shelf.transcriber.windows and server.service.models.stats().engines["large"].windows_done


async def test_a_native_session_with_another_model_is_refused(serve: Serve) -> None:
    """Also on a server of one model: the option is our own, and no client sends it by habit."""
    for server, expected in ((await serving(serve, Shelf()), UNKNOWN), (await serve(), "expected fake, got 'other'")):
        (error,) = await native(server, model="other")
        assert error["type"] == "error" and error["code"] == "bad_start" and error["fatal"]
        assert f"model: {expected}" in error["message"]


async def test_a_native_session_whose_model_cannot_be_loaded_ends(serve: Serve) -> None:
    messages = await native(await serving(serve, Shelf(error=RuntimeError("broken"))), model="large")
    assert messages[-1]["code"] == "engine_failed" and "large cannot be loaded" in messages[-1]["message"]


async def test_a_session_for_whose_model_there_is_no_time_is_refused(serve: Serve) -> None:
    """The first session is admitted on any server. The second one is slow by its model, which only now is known."""
    shelf = Shelf(speed_s=5.0)
    server = await serving(serve, shelf)
    async with started(server.stream):
        messages = await native(server, model="large")
        assert messages[-1]["code"] == "overloaded" and "the engine has no time" in messages[-1]["message"]
        assert (await native(server))[0]["type"] == "started"


async def test_a_session_that_names_no_model_counts_for_the_first(serve: Serve) -> None:
    """What a new session is expected to need is the mean over the models of all sessions."""
    server = await serving(serve, Shelf(speed_s=0.4))
    models = server.service.models
    first_s = server.transcriber.stats().utterance_encode_s
    async with started(server.stream):
        lease = await models.take("large")
        assert models.stats().utterance_encode_s == pytest.approx((first_s + 0.4) / 2)
        lease.release()


def listen(server: Running, model: str) -> str:
    return f"ws://{server.address}/v1/listen?encoding=linear32&sample_rate=16000&model={model}"


async def deepgram(server: Running, model: str) -> dict[str, Any]:
    """The last result of a stream."""
    async with connect(listen(server, model)) as socket:
        await socket.send(pcm(TALK))
        await socket.send(json.dumps({"type": "CloseStream"}))
        results = [json.loads(message) async for message in socket]
    return next(each for each in results if each["type"] == "Results" and each["is_final"])


async def test_deepgrams_clients_choose_in_the_url(server: Running) -> None:
    for name, answers in (("nova-3", "fake"), ("large", "large")):
        result = await deepgram(server, name)
        assert result["metadata"]["model_info"]["name"] == answers
        assert result["channel"]["alternatives"][0]["transcript"] == said([1, 2, 3])
        answer = (await server.post(f"/v1/listen?model={name}", content=RECORDING)).json()
        assert [each["name"] for each in answer["metadata"]["model_info"].values()] == [answers]
    refused = await server.post("/v1/listen?model=other", content=RECORDING)
    assert refused.status_code == 400 and UNKNOWN in refused.json()["err_msg"]
    answer = await refusal(listen(server, "other"))
    assert answer.status_code == 400 and UNKNOWN in bytes(answer.body).decode()


async def test_a_deepgram_client_is_told_why_its_model_cannot_be_had(serve: Serve) -> None:
    server = await serving(serve, Shelf(needed_bytes=1))
    async with connect(listen(server, "large")) as socket:
        last = (await receive_all(socket))[-1]
    assert last["type"] == "Error" and "large needs" in last["description"]
    assert socket.close_code == 1013


async def test_the_loading_of_a_model_takes_no_time_of_its_client(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its audio waits in the network meanwhile."""
    monkeypatch.setattr(Deepgram, "idle_timeout_s", 0.5)
    shelf = Shelf()
    shelf.may_load.clear()
    server = await serving(serve, shelf)
    waiting = asyncio.create_task(deepgram(server, "large"))
    await shelf.begun.wait()
    await asyncio.sleep(0.6)  # The client's time is on the wall clock.
    shelf.may_load.set()
    result = await waiting
    assert result["channel"]["alternatives"][0]["transcript"] == said([1, 2, 3])


@pytest.mark.parametrize("is_in_url", [True, False])
async def test_realtime_clients_choose_in_the_url_or_an_update(server: Running, shelf: Shelf, is_in_url: bool) -> None:
    update = json.loads(json.dumps(UPDATE))
    if not is_in_url:
        update["session"]["audio"]["input"]["transcription"] = {"model": "large"}
    async with opened(server, "?model=large" if is_in_url else "") as socket:
        await socket.send(json.dumps(update))
        await receive(socket)
        session = (await receive(socket))["session"]
        assert session["audio"]["input"]["transcription"]["model"] == "large"
        await socket.send(append([1, 2, 3], 1.0))
        while (message := await receive(socket))["type"] != "conversation.item.input_audio_transcription.completed":
            assert message["type"] != "error", message
        assert message["transcript"] == said([1, 2, 3]) and shelf.transcriber.windows
        # The session has begun with this model.
        update["session"]["audio"]["input"]["transcription"] = {"model": "fake"}
        await socket.send(json.dumps(update))
        error = await receive(socket)
        assert error["type"] == "error" and "large, with which the session has started" in error["error"]["message"]
    if is_in_url:
        response = await refusal(f"ws://{server.address}/v1/realtime?model=other")
        assert response.status_code == 404 and UNKNOWN in bytes(response.body).decode()


async def whisperlive(server: Running, model: str) -> list[dict[str, Any]]:
    """The messages up to the readiness or an error."""
    messages: list[dict[str, Any]] = []
    async with connect(f"ws://{server.address}/") as socket:
        await socket.send(json.dumps({"uid": "u", "language": "en", "task": "transcribe", "model": model}))
        while not messages or messages[-1].get("message") != "SERVER_READY":
            messages.append(await receive(socket))
            if messages[-1].get("status") == "ERROR":
                break
        if messages[-1].get("message") == "SERVER_READY":
            await socket.send(pcm(TALK))
            while not any(each.get("completed") for each in messages[-1].get("segments", ())):
                messages.append(await receive(socket))
    return messages


async def test_whisperlives_clients_choose_in_their_options(server: Running, shelf: Shelf) -> None:
    """`small` is what they ask for unless their user says something else: it means any."""
    usual = await whisperlive(server, "small")
    assert any("'small' is not served here; fake is" in str(each.get("message")) for each in usual)
    assert shelf.n_loads == 0
    chosen = await whisperlive(server, "large")
    assert shelf.transcriber.windows and not any(each.get("status") == "WARNING" for each in chosen)
    assert UNKNOWN in (await whisperlive(server, "other"))[-1]["message"]


async def test_telephone_systems_choose_with_a_parameter_of_the_call(server: Running, shelf: Shelf) -> None:
    for name, expected in (("large", {"type": "started", "model": "large"}), ("other", {"code": "bad_start"})):
        async with subscriber(server.address) as listener:
            async with call(server.address, tracks=["inbound"], customParameters={"model": name}) as socket:
                await socket.send('{"event":"stop"}')
            first = next(each for each in await receive_all(listener) if each["type"] != "call_started")
        assert expected.items() <= first.items()
    assert "model: " + UNKNOWN in first["message"]


async def test_wyomings_clients_choose_with_transcribe(serve: Serve) -> None:
    shelf = Shelf()
    server = await serving(serve, shelf, wyoming_port=free_port())
    async with wyoming(server) as client:
        client.send("describe")
        (program,) = (await client.event())["data"]["asr"]
        assert [each["name"] for each in program["models"]] == ["fake", "large"]
        client.speak(1, 2, 3, name="large")
        event = await client.event()
        assert event["data"]["text"] == said([1, 2, 3]) and shelf.transcriber.windows
    async with wyoming(server) as client:
        client.speak(1, 2, 3, name="other")
        assert "name: " + UNKNOWN in (await client.event())["data"]["text"]


async def test_each_model_has_its_counters(server: Running) -> None:
    await native(server, model="large")
    page = (await server.get("/metrics")).text
    assert 'tutti_engine_up{engine="fake"} 1.0' in page and 'tutti_engine_up{engine="large"} 1.0' in page
