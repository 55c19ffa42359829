"""What is redacted exists nowhere: in no message, log, file or database, and in no object after its utterance."""

import base64
import gc
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from websockets.asyncio.client import connect

from tests.app.conftest import Running, until
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.app.dialects.openai.test_realtime_endpoint import UPDATE
from tests.app.dialects.twilio.test_endpoint import messages
from tests.app.dialects.twilio.test_wire import begin
from tests.app.publish.serving_rooms import listener, speaker
from tests.app.session.decoding.test_translations import TRANSLATES
from tests.app.translation.test_chat_translator import StandIn, echo
from tests.fakes import FakeTranscriber, pcm, silence, slow_mulaw, speech
from tests.plugins.accounts.jobs.conftest import ServeJobs, http, serve_jobs
from tests.plugins.telemetry.test_traces import Spans, followed
from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.speaker_clustering import SpeakerThresholds
from tutti_server.app.voices.speaker_model import SpeakerModel
from tutti_server.engine import api

__all__ = ["http", "serve_jobs"]


PLANTED = range(0x1BBD, 0x1BC1)
"""A card's number in groups; as integers, because the test, and its source, must not hold the texts either."""
REGEX = r"(?<![\da-f])(?<!\d\.)710[1-4](?![\da-f]*[a-f])"
"""Finds the groups, also where the next one follows at once, but not within hashes and fractions of numbers."""
PATTERN, BYTES_PATTERN = re.compile(REGEX), re.compile(REGEX.encode())
TEXT_TYPES = (str, bytes, bytearray)
KNOWN: dict[int, str | bytes | bytearray] = {}
"""The texts that were there before the tests of this module, by their ids."""
EARLIER: set[str | bytes | bytearray] = set()
"""Texts of other modules in which such a number stands, such as an address in the documentation of a library."""
FIRST = 20
"""The number of the fake's word that is the first group."""
TALK = np.concatenate((silence(0.3), speech([1, 2, *range(FIRST, FIRST + 4), 3]), silence(0.9)))


def spoken(text: str) -> str:
    """A text of the fake engine, where the planted groups stand instead of its words for them, also translated ones."""
    for index, group in enumerate(PLANTED):
        text = text.replace(f"w{FIRST + index}", str(group)).replace(f"e{FIRST + index}", str(group))
    return text


def with_secrets(event: api.EngineEvent) -> api.EngineEvent:
    match event:
        case api.SegmentEvent():
            return replace(event, segment=told(event.segment))
        case api.DoneEvent():
            return replace(
                event,
                text=spoken(event.text),
                pieces=tuple(replace(each, text=spoken(each.text)) for each in event.pieces),
                segments=tuple(map(told, event.segments)),
            )
        case api.TranslatedEvent(api.DoneEvent() as done):
            planted = with_secrets(done)
            assert isinstance(planted, api.DoneEvent)
            return replace(event, done=planted)
        case _:
            return event


def told(segment: api.Segment) -> api.Segment:
    words = tuple(replace(word, text=spoken(word.text)) for word in segment.words or ())
    return replace(segment, text=spoken(segment.text), words=words or None)


class Indiscreet(FakeTranscriber):
    """An engine that hears the number of a card."""

    @asynccontextmanager
    async def submit(self, window: api.Window) -> AsyncIterator[AsyncIterator[api.EngineEvent]]:
        async def events(inner: AsyncIterator[api.EngineEvent]) -> AsyncIterator[api.EngineEvent]:
            async for event in inner:
                yield with_secrets(event)

        async with super().submit(window) as inner:
            yield events(inner)


def is_planted(value: str | bytes | bytearray) -> bool:
    return bool(PATTERN.search(value) if isinstance(value, str) else BYTES_PATTERN.search(value))


@pytest.fixture(scope="module", autouse=True)
def texts_of_other_modules() -> Iterator[None]:
    """Know the texts that are there before the first one is planted, and keep them, so that no other takes their place.

    A night's process has millions of them: to look at each again would take longer than the tests.
    """
    # The collector does not list what is frozen, such as the modules, which may keep a text too.
    gc.unfreeze()
    KNOWN.update((id(each), each) for each in live_texts() if type(each) is not bytearray)
    EARLIER.update(each for each in KNOWN.values() if is_planted(each))
    yield
    KNOWN.clear()
    EARLIER.clear()
    gc.freeze()


def live_texts() -> list[str | bytes | bytearray]:
    """The texts in all objects of this process, but for those of `KNOWN`."""
    gc.collect()
    found: dict[int, str | bytes | bytearray] = {}
    holders = gc.get_objects()
    while holders:
        held = gc.get_referents(*holders)
        found |= {id(each): each for each in held if type(each) in TEXT_TYPES and id(each) not in KNOWN}
        # The collector does not list tuples and dicts that hold nothing but texts and numbers.
        holders = [each for each in held if type(each) in (tuple, dict) and not gc.is_tracked(each)]
    return list(found.values())


def live_secrets() -> list[str | bytes | bytearray]:
    """The planted texts in all objects of this process."""
    planted = [each for each in live_texts() if is_planted(each)]
    return [each for each in planted if (bytes(each) if isinstance(each, bytearray) else each) not in EARLIER]


def files_with_secrets(folder: Path) -> list[str]:
    """The names of the files that have the planted texts."""
    return [path.name for path in folder.rglob("*") if path.is_file() and is_planted(path.read_bytes())]


async def live(server: Running, start: dict[str, Any], heard: list[str], *, hides: bool = True) -> None:
    """A native session, whose messages join `heard`. It stays open until all of its text is final.

    Args:
        hides: whether nothing that was planted may be in memory then.
    """
    audio = {"encoding": "pcm_f32le", "sample_rate": 16000}
    async with connect(server.stream) as socket:
        await socket.send(json.dumps({"type": "start", "audio": audio, "turns": True} | start))
        for at in range(0, len(data := pcm(TALK)), 6400):
            await socket.send(data[at : at + 6400])
        while json.loads(message := str(await socket.recv()))["type"] != "utterance":
            heard.append(message)
        heard.append(message)
        # The session is still open.
        assert not hides or live_secrets() == []
        await socket.send('{"type":"stop"}')
        heard += [str(message) async for message in socket]


async def deepgram(server: Running, heard: list[str], **query: str) -> None:
    raw = {"encoding": "linear32", "sample_rate": "16000", "interim_results": "true"}
    url = httpx.URL(f"ws://{server.address}/v1/listen", params=raw | query)
    async with connect(str(url)) as socket:
        await socket.send(pcm(TALK))
        await socket.send('{"type":"CloseStream"}')
        heard += [str(message) async for message in socket]


async def post(server: Running, http: httpx.AsyncClient, form: dict[str, Any]) -> httpx.Response:
    return await http.post(f"{server.http}/v1/audio/transcriptions", data=form, files={"file": wav(TALK)})


async def transcribe(server: Running, http: httpx.AsyncClient, form: dict[str, Any], heard: list[str]) -> None:
    """Have the talk transcribed as a file. The answer joins `heard`."""
    answer = await post(server, http, form)
    assert answer.status_code == 200, answer.text
    heard.append(answer.text)


WORDS: dict[str, Any] = {"response_format": "verbose_json", "timestamp_granularities[]": ["word", "segment"]}


async def files(server: Running, http: httpx.AsyncClient, rules: dict[str, str], heard: list[str]) -> None:
    for form in (WORDS, *({"response_format": name} for name in ("json", "srt", "vtt", "text"))):
        await transcribe(server, http, {**form, **rules}, heard)


async def job(server: Running, http: httpx.AsyncClient, rules: dict[str, str], heard: list[str]) -> None:
    url = f"{server.http}/v1/jobs"
    submitted = await http.post(url, data={"response_format": "verbose_json", **rules}, files={"file": wav(TALK)})
    while (answer := await http.get(f"{url}/{submitted.json()['id']}")).json()["status"] in ("queued", "running"):
        pass
    assert answer.json()["status"] == "done"
    heard.append((await http.get(f"{url}/{submitted.json()['id']}/result")).text)


async def one_voice(stretches: Sequence[Samples]) -> NDArray[np.float32]:
    return np.ones((len(stretches), 1), dtype=np.float32)


async def flux(server: Running, http: httpx.AsyncClient, heard: list[str]) -> None:
    query = "model=flux-general-en&encoding=linear32&sample_rate=16000&eager_eot_threshold=0.3"
    async with connect(f"ws://{server.address}/v2/listen?{query}") as socket:
        for at in range(0, len(TALK), 1600):
            await socket.send(pcm(TALK[at : at + 1600]))
        await socket.send('{"type":"CloseStream"}')
        heard += [str(message) async for message in socket]


async def realtime(server: Running, http: httpx.AsyncClient, heard: list[str]) -> None:
    include = ["item.input_audio_transcription.logprobs"]
    async with connect(f"ws://{server.address}/v1/realtime") as socket:
        update: dict[str, Any] = json.loads(json.dumps(UPDATE))
        update["session"]["include"] = include
        await socket.send(json.dumps(update))
        audio = np.round(TALK * 32768).astype("<i2").tobytes()
        for at in range(0, len(audio), 6400):
            chunk = base64.b64encode(audio[at : at + 6400]).decode()
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": chunk}))
        while "transcription.completed" not in (message := str(await socket.recv())):
            heard.append(message)
        heard.append(message)


async def whisper_live(server: Running, http: httpx.AsyncClient, heard: list[str]) -> None:
    async with connect(f"ws://{server.address}") as socket:
        await socket.send(json.dumps({"uid": "u1", "language": "en", "task": "transcribe", "model": "fake"}))
        await socket.send(pcm(TALK))
        await socket.send(b"END_OF_AUDIO")
        heard += [str(message) async for message in socket]


async def twilio(server: Running, http: httpx.AsyncClient, heard: list[str]) -> None:
    """Both sides read the number out, at the same time."""
    async with connect(f"ws://{server.address}/v1/calls/CA1") as listener:
        async with connect(f"ws://{server.address}/v1/twilio") as socket:
            await socket.send('{"event":"connected","protocol":"Call","version":"1.0.0"}')
            await socket.send(json.dumps(begin()))
            audio = slow_mulaw(TALK)
            for message in messages(audio, audio):
                await socket.send(message)
            await socket.send('{"event":"stop","stop":{"callSid":"CA1"}}')
            heard += [str(message) async for message in socket]
        heard += [str(message) async for message in listener]


async def room(server: Running, http: httpx.AsyncClient, heard: list[str]) -> None:
    async with speaker(server) as (socket, started):
        name = started["room"]["name"]
        async with listener(server, name) as reader:
            await socket.send(pcm(TALK))
            await until(socket, "utterance")
            heard.append(json.dumps(await reader.until("utterance")))
        # A reader that connects later receives the earlier text.
        async with http.stream("GET", f"{server.http}/captions/{name}/events") as late:
            async for line in late.aiter_lines():
                heard.append(line)
                if "CARD_NUMBER" in line:
                    break
        await socket.send('{"type":"stop"}')
        heard += [str(message) async for message in socket]


async def file_forms(server: Running, http: httpx.AsyncClient, heard: list[str]) -> None:
    stream = {"stream": "true"}
    for form in (WORDS | stream, {"response_format": "json"} | stream):
        await transcribe(server, http, form, heard)
    for response_format in ("diarized_json", "call_record", "call_record_srt"):
        await transcribe(server, http, {"response_format": response_format}, heard)
    query = dict.fromkeys(("utterances", "paragraphs", "diarize", "punctuate"), "true") | {"search": "CARD_NUMBER"}
    answer = await http.post(f"{server.http}/v1/listen", params=query, content=wav(TALK))
    assert answer.status_code == 200, answer.text
    heard.append(answer.text)


def check_nothing_remains(caplog: pytest.LogCaptureFixture, folder: Path) -> None:
    """Check the log, the files and the memory."""
    assert [each.getMessage() for each in caplog.records if is_planted(each.getMessage())] == []
    assert files_with_secrets(folder) == []
    assert live_secrets() == []


async def test_a_number_that_a_client_redacts_exists_nowhere(
    serve_jobs: ServeJobs, http: httpx.AsyncClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the operator redacts comes below."""
    caplog.set_level(logging.DEBUG)
    server = await serve_jobs(Indiscreet())
    server.service.session_config = replace(server.service.session_config, speculates=True)
    rules = {"redact": ["card"]}
    form = {"text_rules": json.dumps(rules)}
    heard: list[str] = []
    await live(server, {"words": True, "interim_words": True, "text_rules": rules}, heard)
    await deepgram(server, heard, redact="pci")
    await files(server, http, form, heard)
    await job(server, http, form, heard)
    assert sum("[CARD_NUMBER]" in each for each in heard) >= 8
    interims = [each for each in heard if '"interim"' in each]
    assert any("[NUMBER]" in each or "[CARD_NUMBER]" in each for each in interims)
    assert [each for each in heard if is_planted(each)] == []
    check_nothing_remains(caplog, tmp_path)


async def test_the_operators_redaction_holds_in_every_protocol(
    serve_jobs: ServeJobs, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Live protocols, calls and those who listen to them, rooms, and all forms of an answer for a file."""
    caplog.set_level(logging.DEBUG)
    server = await serve_jobs(Indiscreet(), redact="card")
    server.service.session_config = replace(server.service.session_config, speculates=True)
    server.service.speaker_model = SpeakerModel(one_voice, SpeakerThresholds(joins=0.5, knows=0.6))
    for protocol in (flux, realtime, whisper_live, twilio, room, file_forms):
        heard: list[str] = []
        await protocol(server, http, heard)
        assert any("[CARD_NUMBER]" in each for each in heard), protocol.__name__
        assert [each for each in heard if is_planted(each)] == [], protocol.__name__
    check_nothing_remains(caplog, tmp_path)


@pytest.mark.parametrize("redact", ["card", ""])
async def test_a_redacted_number_is_in_no_translation_and_no_trace(
    serve_jobs: ServeJobs, caplog: pytest.LogCaptureFixture, redact: str
) -> None:
    """Nor in what is sent to those who translate. Without redaction both translations have it, and no trace has."""
    caplog.set_level(logging.DEBUG)
    stand_in, spans = StandIn(echo), Spans()
    async with stand_in.running() as url:
        server = await serve_jobs(
            Indiscreet(info=TRANSLATES),
            plugins=followed(spans),
            redact=redact,
            translate_url=url,
            translate_model="small",
            translate_languages="fr",
            translate_timeout_s=100,
        )
        heard: list[str] = []
        await live(server, {"language": "de", "translate": ["en", "fr"]}, heard, hides=bool(redact))
        server.server.stop()
        await server.task
    translations = [json.loads(each) for each in heard if '"translation"' in each]
    asked = [json.dumps(each) for each in stand_in.requests]
    assert {each["language"] for each in translations} == {"en", "fr"} and asked and spans.named("utterance")
    for texts in ([json.dumps(each) for each in translations if each["language"] == "en"], asked):
        assert [is_planted(each) for each in texts] == [not redact] * len(texts)
    assert not is_planted(spans.text())
    assert not redact or not any(is_planted(each.getMessage()) for each in caplog.records)


async def test_without_redaction_the_number_is_found(
    serve_jobs: ServeJobs, http: httpx.AsyncClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In each place where the tests above look for it. Otherwise they could not fail."""
    caplog.set_level(logging.DEBUG)
    server = await serve_jobs(Indiscreet())
    heard: list[str] = []
    await files(server, http, {}, heard)
    assert all(map(is_planted, heard)) and live_secrets() != []
    await job(server, http, {}, heard)
    await live(server, {}, heard, hides=False)
    assert files_with_secrets(tmp_path) != []
    assert any(is_planted(each.getMessage()) for each in caplog.records)


async def test_what_redaction_cannot_hold_is_refused(serve_jobs: ServeJobs, http: httpx.AsyncClient) -> None:
    rules = {"text_rules": '{"redact": ["card"]}'}
    for server, fields in ((await serve_jobs(), rules), (await serve_jobs(redact="card"), {})):
        for field, value in (("include[]", "logprobs"), ("condition_on_previous_text", "true")):
            answer = await post(server, http, {**fields, field: value})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, field.removesuffix("[]"))
    for value in ("[]", '{"redact": ["names"]}', '{"numeral": true}'):
        answer = await post(server, http, {"text_rules": value})
        assert answer.status_code == 400 and "text_rules" in answer.json()["error"]["message"]
