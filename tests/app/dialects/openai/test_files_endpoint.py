"""File transcription over HTTP: what OpenAI's clients send, and what is refused."""

import asyncio
import io
import json
import threading
import wave
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.types import Message

from tests.app.conftest import Running, Serve
from tests.compat.conformance import refused, supported
from tests.fakes import MODEL, FakeTranscriber, LevelDetector, said, silence, speech
from tests.made_files import Track, damaged, made_file
from tutti_server.app.dialects.openai.files_wire import response_body
from tutti_server.app.media.decoder_workers import Decoders
from tutti_server.app.server.main import build_app
from tutti_server.app.service.settings import Settings
from tutti_server.app.session.core.final_beams import RECORDING_BEAMS, with_beams
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.engine import api
from tutti_server.engine.api import Sampling
from tutti_server.engine.errors import EngineError, EngineFailed, EngineOverloaded

SILENCE = "chunking_strategy[silence_duration_ms]"
TALK = np.concatenate((silence(0.3), speech([1, 2, 3, 4]), silence(4.0), speech([5, 6, 7]), silence(0.5)))


def wav(samples: np.ndarray, sample_rate: int = 16_000, n_channels: int = 1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(n_channels)
        writer.setsampwidth(2)
        writer.setframerate(sample_rate)
        writer.writeframes((samples * 32768).astype("<i2").tobytes())
    return file.getvalue()


def multipart(file: bytes, fields: dict[str, str], is_first: bool = False) -> tuple[bytes, str]:
    """The body and its content type, without a library's opinion about the order."""
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    about = (
        b'Content-Disposition: form-data; name="file"; filename="a"\r\nContent-Type: application/octet-stream\r\n\r\n'
    )
    parts.insert(0 if is_first else len(parts), about + file)
    return b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + b"--b--\r\n", "multipart/form-data; boundary=b"


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), 10_007):
        yield body[at : at + 10_007]


@asynccontextmanager
async def raw(
    server: Running,
    content_type: str,
    n_bytes: int,
    headers: str = "",
    path: str = "/v1/audio/transcriptions",
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which the head of an upload was sent, and nothing of its body."""
    host, _, port = server.address.partition(":")
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}"
            writer.write(f"{head}\r\n{headers}Content-Length: {n_bytes}\r\n\r\n".encode())
            yield reader, writer
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@dataclass
class HoldingTranscriber(FakeTranscriber):
    """Holds every window but the first until it is released."""

    held: asyncio.Event = field(default_factory=asyncio.Event)

    async def _events(self, window: api.Window) -> AsyncIterator[api.EngineEvent]:
        if window is not self.windows[0]:
            self.held.set()
            await self._released.wait()
        async for event in super()._events(window):
            yield event


class FailingTranscriber(FakeTranscriber):
    """Dies at the second window, once the first one is done."""

    async def _events(self, window: api.Window) -> AsyncIterator[api.EngineEvent]:
        if window is not self.windows[0]:
            await self._released.wait()
            raise EngineFailed("gone")
        async for event in super()._events(window):
            yield event
        self.release()


async def post(
    url: str,
    content: bytes = b"",
    data: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    path: str = "/v1/audio/transcriptions",
) -> httpx.Response:
    async with httpx.AsyncClient(timeout=20) as client:
        files = {"file": ("speech", content, "application/octet-stream")} if content else None
        return await client.post(url + path, data=data or {}, files=files, headers=headers or {})


async def post_body(
    server: Running, body: bytes | AsyncIterator[bytes], content_type: str, **headers: str
) -> httpx.Response:
    """The answer to a body as it is."""
    return await server.post(
        "/v1/audio/transcriptions", content=body, headers={"content-type": content_type, **headers}
    )


@asynccontextmanager
async def streaming(server: Running) -> AsyncIterator[AsyncIterator[str]]:
    """The lines of a streamed answer, while they come."""
    url, files = f"{server.http}/v1/audio/transcriptions", {"file": ("speech", wav(TALK))}
    async with (
        httpx.AsyncClient(timeout=20) as client,
        asyncio.timeout(20),
        client.stream("POST", url, data={"stream": "true"}, files=files) as response,
    ):
        yield response.aiter_lines()


def sse(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a streamed answer, without pings."""
    frames = response.text.split("\n\n")
    assert frames.pop() == ""
    return [json.loads(each.removeprefix("data: ")) for each in frames if not each.startswith(":")]


async def test_times_are_those_of_the_file(server: Running) -> None:
    """A track that begins late, and goes on after a pause of the recorder."""
    track = Track(samples=TALK, offset_s=4.9, gap=(3.5, 15.0))
    content = made_file("matroska", "pcm_s16le", 16_000, [track])
    body = (await post(server.http, content, {"response_format": "verbose_json"})).json()
    starts = [each["start"] for each in body["segments"]]
    assert starts == pytest.approx([5.2, 0.3 + 4 * 0.28 + 4.0 + 4.9 + 15.0], abs=0.05)
    assert body["duration"] == pytest.approx(len(TALK) / 16_000 + 4.9 + 15.0, abs=0.05)
    assert (body["uncovered"], "warnings" in body) == ([], False)


async def test_all_tracks_have_results_of_their_own(server: Running) -> None:
    """Each as if it had been chosen, with its number, the language that the file names, and its own warnings."""
    tracks = [Track(samples=silence(3.0), language="eng"), Track(samples=TALK)]
    content = made_file("matroska", "pcm_s16le", 16_000, tracks)
    answer = await post(server.http, content, {"tracks": "all", "response_format": "verbose_json"})
    first, second = answer.json()["tracks"]
    assert (first["track"], first["track_language"], first["text"]) == (0, "eng", "")
    assert (second["track"], second["track_language"]) == (1, None)
    for number, found in enumerate((first, second)):
        alone = (await post(server.http, content, {"track": str(number), "response_format": "verbose_json"})).json()
        assert {name: value for name, value in found.items() if not name.startswith("track")} == alone
    assert second["text"]
    assert "x-tutti-warnings" not in answer.headers


async def test_a_track_without_audio_spoils_no_other(server: Running) -> None:
    """It has a warning in place of its text. If there is no other, the file is refused."""
    nothing = Track(samples=np.zeros(0, np.float32), language="eng")
    content = made_file("matroska", "pcm_s16le", 16_000, [Track(samples=TALK), nothing])
    answer = await post(server.http, content, {"tracks": "all"})
    first, second = answer.json()["tracks"]
    assert first["text"] == said([1, 2, 3, 4, 5, 6, 7]) and "warnings" not in first
    assert (second["text"], second["track_language"]) == ("", "eng")
    (warning,) = second["warnings"]
    assert warning["code"] == "unreadable_track" and "it holds none" in warning["message"]
    assert answer.headers["x-tutti-warnings"] == f"track 1: {warning['message']}"
    content = made_file("matroska", "pcm_s16le", 16_000, [nothing, nothing])
    assert (await post(server.http, content, {"tracks": "all"})).status_code == 400


async def test_a_file_of_very_many_tracks_is_refused(server: Running) -> None:
    """Each of them would take as long as a file."""
    content = made_file("matroska", "pcm_s16le", 16_000, [Track(samples=silence(0.1))] * 17)
    refused = await post(server.http, content, {"tracks": "all"})
    assert "tracks: expected a file with at most 16 audio tracks, got 17" in refused.json()["error"]["message"]


async def test_one_of_several_tracks_is_transcribed(server: Running) -> None:
    """The one that `track` names; else the default one, and a warning names the others."""
    tracks = [Track(samples=silence(3.0), language="eng"), Track(samples=TALK, language="fre")]
    content = made_file("matroska", "pcm_s16le", 16_000, tracks)
    body = (await post(server.http, content)).json()
    assert body["text"] == "" and "not 1 (fre)" in body["warnings"][0]["message"]
    for track in ("1", "fr", "french"):
        body = (await post(server.http, content, {"track": track})).json()
        assert body["text"] == said([1, 2, 3, 4, 5, 6, 7]) and "warnings" not in body
    by_channel = {"response_format": "diarized_json", "channel_names": "agent"}
    for fields in ({"track": "2"}, {"track": "x" * 1000}, {"track": "\N{GRINNING FACE}" * 80, **by_channel}):
        refused = await post(server.http, content, fields)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "track")


async def test_audio_that_was_lost_is_named(server: Running) -> None:
    """In the answer, in the last event of a stream, and in a header for formats without a place for it."""
    response = await post(server.http, DAMAGED, {"response_format": "verbose_json"})
    body = response.json()
    assert "got damaged data from" in response.headers["x-tutti-warnings"]
    assert body["warnings"] == [{"code": "lost_audio", "message": response.headers["x-tutti-warnings"]}]
    assert len(body["uncovered"]) == 1
    record = await post(server.http, DAMAGED, {"response_format": "call_record", "channel_names": "agent"})
    assert record.json()["uncovered"] == body["uncovered"]
    assert body["duration"] == pytest.approx(2 * len(TALK) / 16_000, abs=0.1)
    assert body["segments"][-1]["end"] == pytest.approx(2 * len(TALK) / 16_000 - 0.5, abs=0.2)
    subtitles = await post(server.http, DAMAGED, {"response_format": "srt"})
    assert subtitles.headers["x-tutti-warnings"] == response.headers["x-tutti-warnings"]
    told = sse(await post(server.http, DAMAGED, {"response_format": "verbose_json", "stream": "true"}))
    assert [each["code"] for each in told[-1]["warnings"]] == ["lost_audio"]
    lost = [each for each in told if each["type"] == "transcript.text.segment" and not each["text"]]
    assert len(lost) == 1 and lost[0]["start"] < lost[0]["end"]


DAMAGED = damaged(made_file("matroska", "pcm_s16le", 16_000, [Track(samples=np.tile(TALK, 2))]), 0.3, 0.1)


async def test_speech_that_was_read_again_is_counted(serve: Serve) -> None:
    """Files count in the same metrics as live speech."""
    server = await serve(FakeTranscriber(lost=range(4)))
    response = await post(server.http, wav(TALK[: 2 * 16_000]))
    assert response.json()["text"] == said([1, 2, 3, 4])
    assert server.metric("tutti_redecodes_total") == 1
    assert server.metric("tutti_recovered_seconds_total") == pytest.approx(1.04, abs=0.05)
    assert server.metric("tutti_uncovered_seconds_total") == 0


async def test_a_long_answer_does_not_hold_up_others(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made in a thread, not on the event loop: for a day of speech it takes a second."""
    threads: list[threading.Thread] = []

    def note_thread(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return response_body(*arguments)

    monkeypatch.setattr("tutti_server.app.dialects.openai.files_endpoint.response_body", note_thread)
    server = await serve()
    assert (await post(server.http, wav(TALK), {"response_format": "srt"})).status_code == 200
    assert threads and threading.main_thread() not in threads


async def test_silence_has_no_text(server: Running) -> None:
    async def answer(**fields: str) -> httpx.Response:
        return await post(server.http, wav(silence(1.0)), fields)

    body = (await answer(response_format="verbose_json")).json()
    assert (body["text"], body["segments"]) == ("", [])
    assert [(await answer(response_format=each)).text for each in ("srt", "vtt")] == ["", "WEBVTT\n\n"]
    (done,) = sse(await answer(stream="true"))
    assert (done["type"], done["text"]) == ("transcript.text.done", "")


async def test_text_is_streamed_before_the_file_is_done(serve: Serve) -> None:
    """The first delta comes while the second window is held by the engine."""
    transcriber = HoldingTranscriber()
    async with streaming(await serve(transcriber)) as lines:
        assert json.loads((await anext(lines)).removeprefix("data: "))["delta"] == said([1, 2, 3, 4])
        await transcriber.held.wait()
        transcriber.release()
        assert len([line async for line in lines if line]) == 2


async def test_a_stream_that_a_drain_cannot_wait_for_says_so(serve: Serve) -> None:
    """In its last event, as its status was sent before."""
    transcriber = HoldingTranscriber()
    server = await serve(transcriber, drain_timeout_s=0.1)
    async with streaming(server) as lines:
        assert (await anext(lines)).startswith("data: ")
        await transcriber.held.wait()
        server.server.stop()
        *_, last = [line async for line in lines if line]
        await server.task
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "draining"


async def test_a_failure_in_the_middle_ends_the_stream(serve: Serve) -> None:
    """In OpenAI's envelope, which its clients raise."""
    server = await serve(FailingTranscriber())
    response = await post(server.http, wav(TALK), {"stream": "true"})
    assert response.status_code == 200
    delta, failure = sse(response)
    assert delta["delta"] == said([1, 2, 3, 4])
    assert (failure["error"]["type"], failure["error"]["code"]) == ("server_error", "engine_failed")


async def test_a_waiting_stream_is_kept_alive(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sends comments, which clients ignore."""
    monkeypatch.setattr("tutti_server.app.dialects.openai.files_endpoint.PING_EVERY_S", 0.01)
    transcriber = FakeTranscriber(holds=True)
    server = await serve(transcriber)
    async with streaming(server) as lines:
        assert (await anext(lines)).startswith(":")
        transcriber.release()
        assert len([line async for line in lines if line.startswith("data: ")]) == 3


async def test_the_chunking_strategy_says_at_which_silence_to_cut(server: Running) -> None:
    talk = wav(np.concatenate((speech(range(8)), silence(0.4), speech(range(8)), silence(0.2))))
    await post(server.http, talk)
    assert len(server.transcriber.windows) == 1
    await post(server.http, talk, {"chunking_strategy[type]": "server_vad", SILENCE: "300"})
    assert len(server.transcriber.windows) == 3


@supported("openai-rest", "POST /v1/audio/translations")
@refused("openai-rest", "POST /v1/audio/translations, model that cannot", how="400; some models cannot")
async def test_a_model_translates_if_it_can(serve: Serve) -> None:
    server = await serve(FakeTranscriber(info=replace(MODEL, tasks=("transcribe", "translate"))))
    data = {"response_format": "verbose_json"}
    body = (await post(server.http, wav(TALK), data, path="/v1/audio/translations")).json()
    assert (body["task"], body["language"]) == ("translate", "english")
    assert {window.options.task for window in server.transcriber.windows} == {"translate"}
    cannot = await serve()
    response = await post(cannot.http, wav(TALK), path="/v1/audio/translations")
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, "model", "unsupported_task")
    assert cannot.transcriber.windows == []


RISING = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The temperatures that OpenAI documents for temperature 0."""


@pytest.mark.parametrize(
    ("asked", "sampling", "beam_size"),
    [
        ({}, Sampling(temperatures=RISING), RECORDING_BEAMS),
        ({"best_of": "5", "temperature": "0"}, Sampling(temperatures=RISING, best_of=5), RECORDING_BEAMS),
        ({"temperature": "0.3"}, Sampling(temperatures=(0.3,)), 1),
        ({"temperature_fallback": "false"}, Sampling(temperatures=(0.0,)), RECORDING_BEAMS),
        ({"beam_size": "3"}, Sampling(temperatures=RISING), 3),
    ],
)
async def test_fields_about_decoding_reach_the_engine(
    server: Running, asked: dict[str, str], sampling: Sampling, beam_size: int
) -> None:
    """So do the text before a window, where that is asked for, and hotwords."""
    fields = asked | {"condition_on_previous_text": "true", "hotwords": "Okonkwo, New Orleans,"}
    response = await post(server.http, wav(TALK), fields)
    assert "x-tutti-ignored" not in response.headers
    asked_for = [window.options for window in server.transcriber.windows]
    assert {each.sampling for each in asked_for} == {with_beams(sampling, beam_size, MODEL)}
    assert {each.hotwords for each in asked_for} == {("Okonkwo", "New Orleans")}
    assert [each.previous_text.strip() for each in asked_for] == ["", said([1, 2, 3, 4])]


async def test_fields_without_effect_are_named(server: Running) -> None:
    """A header names each field without effect, also one whose name begins or ends with a space."""
    fields = {"vad_filter": "true", "languages[]": ["en", "xx"], "größe": "2", "zoom ": "3", " a": "4"}
    response = await post(server.http, wav(TALK), fields)
    assert response.headers["x-tutti-ignored"] == "a, gr??e, languages, vad_filter, zoom"
    path = "/v1/audio/transcriptions?language=fr&response_format=srt"
    response = await post(server.http, wav(TALK), {"zoom": "3"}, path=path)
    assert response.headers["x-tutti-ignored"] == "language, response_format, zoom"


async def test_bad_requests_are_explained(server: Running) -> None:
    """And the server goes on. The text before a window is shown to the model only where that is asked for."""
    bad = [
        (b"", {"model": "whisper-1"}, None),
        (wav(TALK), {"file": "twice"}, None),
        (wav(TALK), {"language": "klingon"}, "language"),
        (wav(TALK), {"response_format": "sub"}, "response_format"),
        (wav(TALK), {"beam_size": "10"}, "beam_size"),
        (wav(TALK)[:20], {}, "file"),
        (wav(silence(0.0)), {}, "file"),
        (b"this is no audio at all", {"stream": "true"}, "file"),
    ]
    for content, data, param in bad:
        response = await post(server.http, content, data)
        assert response.status_code == 400
        error = response.json()["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", param)
        assert error["message"]
    body, content_type = multipart(b"hello", {})
    text_for_a_file = await post_body(server, body.replace(b'; filename="a"', b""), content_type)
    assert (text_for_a_file.status_code, text_for_a_file.json()["error"]["param"]) == (400, "file")
    assert (await post(server.http, wav(TALK))).status_code == 200
    assert [window.options.previous_text for window in server.transcriber.windows] == ["", ""]


@pytest.mark.parametrize(("error", "status"), [(EngineFailed("gone"), 500), (EngineOverloaded(3, 3), 503)])
async def test_engine_trouble_has_its_status(
    serve: Serve, error: EngineError, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the reason, with the id that the client received."""
    server = await serve(FakeTranscriber(error=error))
    response = await post(server.http, wav(TALK))
    assert response.status_code == status
    assert response.json()["error"]["code"] == error.code
    assert f"[{response.headers['x-request-id']}] failed with {error.code}: " in caplog.text


async def test_too_many_uploads_are_refused(serve: Serve) -> None:
    """In the words of each protocol."""
    transcriber = FakeTranscriber(holds=True)
    server = await serve(transcriber, max_uploads=1)
    first = asyncio.create_task(post(server.http, wav(TALK)))
    await transcriber.opened.wait()
    refused = await post(server.http, wav(TALK))
    assert refused.json()["error"]["type"] == "rate_limit_error"
    of_deepgram = await server.post("/v1/listen", content=wav(TALK))
    assert of_deepgram.json()["err_code"] == "TOO_MANY_REQUESTS"
    for answer in (refused, of_deepgram):
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    transcriber.release()
    assert (await first).status_code == 200


@pytest.mark.parametrize(
    "path", ["/v1/audio/transcriptions", "/v1/jobs", "/v1/listen", "/v1/listen?callback=https://h/"]
)
async def test_slow_uploads_of_one_key_leave_places_for_others(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """In every protocol."""
    monkeypatch.setattr("tutti_server.app.files.uploads.DISCARD_S", 0.05)
    settings: dict[str, Any] = {"jobs": True, "data_folder": str(tmp_path), "callback_hosts": "h", "max_uploads": 4}
    server = await serve(api_keys="slow,quick", **settings)
    host, _, port = server.address.partition(":")
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer slow\r\ncontent-length: 1000\r\n"
    head += "content-type: multipart/form-data; boundary=b\r\n\r\n--b"
    async with AsyncExitStack() as stack, asyncio.timeout(20):
        answers = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            writer.write(head.encode())
            answers.append(asyncio.create_task(reader.readuntil(b"\r\n")))
        done, held = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        assert [answer.result() for answer in done] == [b"HTTP/1.1 429 Too Many Requests\r\n"]
        assert (await post(server.http, wav(TALK), headers={"authorization": "Bearer quick"})).status_code == 200
        for answer in held:
            answer.cancel()


async def test_a_client_that_goes_away_ends_the_work(serve: Serve) -> None:
    """Its windows are withdrawn, and it no longer counts: before the answer, and in the middle of a stream."""
    transcriber = FakeTranscriber(holds=True)
    server = await serve(transcriber)
    upload = asyncio.create_task(post(server.http, wav(TALK)))
    async with asyncio.timeout(10):
        await transcriber.opened.wait()
        upload.cancel()
        await server.service.admission.all_finished.wait()
    assert transcriber.n_open == 0
    holding = HoldingTranscriber()
    server = await serve(holding)
    async with streaming(server) as lines:
        await anext(lines)
        await holding.held.wait()
    async with asyncio.timeout(10):
        await server.service.admission.all_finished.wait()
    assert holding.n_open == 0


async def test_a_client_that_does_not_read_is_cut_off(decoders: Decoders) -> None:
    """It has no windows, and it does not count."""
    transcriber = HoldingTranscriber()
    config = SessionConfig(make_detector=LevelDetector)
    app = build_app(Settings(send_timeout_s=0.05), transcriber, config, decoders=decoders)
    body, content_type = multipart(wav(TALK), {"stream": "true"})
    incoming = [{"type": "http.request", "body": body}]
    sent: list[str] = []

    async def receive() -> Message:
        return incoming.pop() if incoming else await asyncio.Future()

    async def send(message: Message) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            await asyncio.Future()

    path = {
        "path": "/v1/audio/transcriptions",
        "query_string": b"",
        "headers": [(b"content-type", content_type.encode())],
    }
    async with asyncio.timeout(10):
        await app({"type": "http", "method": "POST", "app": app, "http_version": "1.1", **path}, receive, send)
    assert sent == ["http.response.start", "http.response.body"]
    assert transcriber.n_open == 0
    assert app.state.service.admission.all_finished.is_set()


async def test_a_refused_client_reads_why(serve: Serve) -> None:
    """It is let finish sending, so that it finds an answer and not a broken connection."""
    server = await serve(api_keys="secret", max_upload_mb=2)
    large = wav(silence(200))
    # As many proxies do. The server cannot leave such a connection open after its answer.
    closes = {"Connection": "close"}
    assert (await post(server.http, large, headers=closes)).status_code == 401
    headers = {"Authorization": "Bearer secret", **closes}
    assert (await post(server.http, large, headers=headers)).status_code == 413
    body, content_type = multipart(large, {})
    of_unknown_length = await post_body(server, pieces(body), content_type, **headers)
    assert (of_unknown_length.status_code, of_unknown_length.json()["error"]["code"]) == (413, "too_large")
    assert (await post(server.http, wav(silence(1)), headers=headers)).status_code == 200


async def test_what_is_no_form_is_refused(server: Running) -> None:
    """Forms that break off among them."""
    broken = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nab'
    for content_type, body in [
        ("application/json", b"{}"),
        ("application/x-www-form-urlencoded", b"file=1"),
        ("multipart/form-data", b"--x"),
        ("multipart/form-data; boundary=x", b"no form at all"),
        ("multipart/form-data; boundary=x", broken),
        ("multipart/form-data; boundary=x; charset=unicode_escape", b"--x--"),
        ('multipart/form-data; boundary=x; charset="\\0"', b"--x--"),
    ]:
        response = await post_body(server, body, content_type)
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith("body: ")


NAMES = ("", '; filename=""', "; filename*=UTF-8''gr%C3%BC%C3%9Fe.wav", '; filename="grüße \\".wav"')


async def test_multipart_in_every_shape(server: Running) -> None:
    """The file comes before or after the other fields, with or without a content length, whatever its name."""
    for name, (is_first, is_chunked) in zip(NAMES, product((True, False), repeat=2), strict=True):
        body, content_type = multipart(wav(TALK), {"response_format": "text"}, is_first=is_first)
        body = body.replace(b'; filename="a"\r\nContent-Type: application/octet-stream', name.encode())
        response = await post_body(server, pieces(body) if is_chunked else body, content_type)
        assert response.text == said([1, 2, 3, 4, 5, 6, 7]) + "\n"


async def test_an_upload_that_stops_is_given_up(serve: Serve) -> None:
    """Whether the client stays silent or goes away, its upload no longer counts."""
    server = await serve(idle_timeout_s=0.2)
    body, content_type = multipart(wav(TALK), {})
    for goes_away in (False, True):
        async with raw(server, content_type, len(body)) as (reader, writer):
            writer.write(body[: len(body) // 2])
            await writer.drain()
            if not goes_away:
                assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        async with asyncio.timeout(10):
            await server.service.admission.all_finished.wait()


async def test_a_client_that_asks_first_need_not_send(serve: Serve) -> None:
    """As curl does with large files: `Expect: 100-continue` is answered with the refusal itself."""
    server = await serve(api_keys="secret")
    async with raw(server, "multipart/form-data; boundary=b", 1_000_000, "Expect: 100-continue\r\n") as (reader, _):
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")


async def test_a_server_that_goes_down_says_so(server: Running) -> None:
    server.service.admission.is_draining = True
    response = await post(server.http, wav(TALK))
    assert (response.status_code, response.json()["error"]["code"]) == (503, "draining")
    assert response.headers["retry-after"] == "5"
    server.service.admission.is_draining = False


@pytest.mark.parametrize("is_received", [True, False])
@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/listen"])
async def test_an_upload_that_a_drain_cannot_wait_for_is_refused(
    serve: Serve, is_received: bool, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With 503 in JSON, whether its body has come or not; and the server ends."""
    server = await serve(FakeTranscriber(holds=True), drain_timeout_s=0.1)
    body, content_type = multipart(wav(TALK), {})
    if path == "/v1/listen":
        body, content_type = wav(TALK), "audio/wav"
    async with raw(server, content_type, len(body), path=path) as (reader, writer):
        writer.write(body if is_received else body[:-1])
        await server.service.admission.has_begun.wait()
        if is_received:
            await server.transcriber.opened.wait()
        server.server.stop()
        async with asyncio.timeout(3):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            answer = json.loads(await reader.read())
            await server.task
    assert head.startswith("HTTP/1.1 503 ") and "retry-after: 5" in head
    assert answer["error"]["code"] == "draining" if "error" in answer else answer["err_code"] == "SERVICE_UNAVAILABLE"
    assert [each for each in caplog.records if each.exc_info] == []
