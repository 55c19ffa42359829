"""File transcription over HTTP: what OpenAI's clients send, and what is refused."""

import asyncio
import io
import wave

import httpx
import numpy as np
import pytest

from engine.api import Sampling
from engine.errors import EngineFailed, EngineOverloaded
from tests.fakes import FakeTranscriber, said, silence, speech

TALK = np.concatenate((silence(0.3), speech([1, 2, 3, 4]), silence(4.0), speech([5, 6, 7]), silence(0.5)))


def wav(samples: np.ndarray, sample_rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(sample_rate)
        writer.writeframes((samples * 32768).astype("<i2").tobytes())
    return file.getvalue()


async def post(url: str, content: bytes = b"", data: dict | None = None, headers: dict | None = None) -> httpx.Response:
    async with httpx.AsyncClient(timeout=20) as client:
        files = {"file": ("speech", content, "application/octet-stream")} if content else None
        return await client.post(f"{url}/v1/audio/transcriptions", data=data or {}, files=files, headers=headers or {})


async def test_json_is_the_text(serve) -> None:
    server = await serve()
    response = await post(server.http, wav(TALK), {"model": "whisper-1"})
    assert response.status_code == 200
    assert response.json() == {
        "text": said([1, 2, 3, 4, 5, 6, 7]),
        "usage": {"type": "duration", "seconds": round(len(TALK) / 16000)},
    }


async def test_verbose_json_has_every_field_that_clients_read(serve) -> None:
    server = await serve()
    response = await post(server.http, wav(TALK), {"response_format": "verbose_json", "language": "en"})
    body = response.json()
    assert (body["task"], body["language"]) == ("transcribe", "english")
    assert body["duration"] == pytest.approx(len(TALK) / 16000, abs=0.03)
    assert " ".join(s["text"].strip() for s in body["segments"]) == body["text"]
    first, second = body["segments"]
    assert first["start"] == pytest.approx(0.3, abs=0.05)
    assert second["start"] == pytest.approx(0.3 + 4 * 0.28 + 4.0, abs=0.05)
    assert set(first) == {
        "id",
        "seek",
        "start",
        "end",
        "text",
        "tokens",
        "temperature",
        "avg_logprob",
        "compression_ratio",
        "no_speech_prob",
    }


async def test_speech_that_was_read_again_is_counted(serve) -> None:
    """Files count in the same metrics as live speech."""
    server = await serve(FakeTranscriber(lost=range(4)))
    response = await post(server.http, wav(TALK[: 2 * 16_000]))
    assert response.json()["text"] == said([1, 2, 3, 4])
    assert server.metric("tutti_redecodes_total") == 1
    assert server.metric("tutti_recovered_seconds_total") == pytest.approx(1.04, abs=0.05)
    assert server.metric("tutti_uncovered_seconds_total") == 0


async def test_text_is_plain(serve) -> None:
    server = await serve()
    response = await post(server.http, wav(TALK), {"response_format": "text"})
    assert response.headers["content-type"].startswith("text/plain")
    assert response.text == said([1, 2, 3, 4, 5, 6, 7]) + "\n"


async def test_a_long_file_comes_out_whole_and_in_order(serve) -> None:
    """Three minutes are cut into windows that are decoded side by side."""
    server = await serve()
    words = [index * 7 % 80 for index in range(640)]
    response = await post(server.http, wav(speech(words)))
    assert response.json()["text"] == said(words)


async def test_silence_has_no_text(serve) -> None:
    server = await serve()
    response = await post(server.http, wav(silence(2.0)), {"response_format": "verbose_json"})
    assert (response.json()["text"], response.json()["segments"]) == ("", [])


async def test_what_is_not_honoured_is_named(serve) -> None:
    """A field that changes nothing here is told in a header, not swallowed."""
    server = await serve()
    response = await post(server.http, wav(TALK), {"include[]": "logprobs", "chunking_strategy": "auto"})
    assert response.headers["x-tutti-ignored"] == "chunking_strategy, include[]"


@pytest.mark.parametrize(("asked", "shown"), [("true", "w1 w2 w3 w4"), ("False", ""), (None, "")])
async def test_context_is_carried_where_it_is_asked_for(serve, asked: str | None, shown: str) -> None:
    """`condition_on_previous_text` shows the model the text before a window."""
    server = await serve()
    response = await post(server.http, wav(TALK), {"condition_on_previous_text": asked} if asked else {})
    assert response.json()["text"] == said([1, 2, 3, 4, 5, 6, 7])
    assert "x-tutti-ignored" not in response.headers
    assert [window.options.previous_text.strip() for window in server.transcriber.windows] == ["", shown]


@pytest.mark.parametrize(
    ("asked", "temperatures", "best_of"),
    [
        ({}, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), 1),
        ({"temperature": "0", "best_of": "5"}, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), 5),
        ({"temperature": "0.3"}, (0.3,), 1),
    ],
)
async def test_the_temperature_rises_unless_one_is_given(serve, asked: dict, temperatures: tuple, best_of: int) -> None:
    """As OpenAI's documentation has it for 0."""
    server = await serve()
    response = await post(server.http, wav(TALK), asked)
    assert "x-tutti-ignored" not in response.headers
    for window in server.transcriber.windows:
        assert window.options.sampling == Sampling(temperatures, best_of)


async def test_hotwords_are_passed_on(serve) -> None:
    """They are separated by commas, as other servers of Whisper take them."""
    server = await serve()
    await post(server.http, wav(TALK), {"hotwords": "Okonkwo, New Orleans,"})
    assert {window.options.hotwords for window in server.transcriber.windows} == {("Okonkwo", "New Orleans")}


@pytest.mark.parametrize("granularities", [["word"], ["segment"], ["word", "segment"], []])
async def test_words_and_segments_are_timed_where_asked_for(serve, granularities: list[str]) -> None:
    server = await serve()
    data = {"response_format": "verbose_json", "timestamp_granularities[]": granularities}
    body = (await post(server.http, wav(TALK), data)).json()
    assert ("segments" in body) == (granularities != ["word"])
    assert ("words" in body) == ("word" in granularities)
    if "words" in body:
        assert [word["word"] for word in body["words"]] == body["text"].split()
        times = [time for word in body["words"] for time in (word["start"], word["end"])]
        assert times == sorted(times) and times[-1] <= body["duration"]


@pytest.mark.parametrize(
    ("content", "data", "param"),
    [
        (b"", {"model": "whisper-1"}, None),
        (wav(TALK), {"response_format": "srt"}, "response_format"),
        (wav(TALK), {"stream": "true"}, "stream"),
        (wav(TALK), {"timestamp_granularities[]": "word"}, "timestamp_granularities"),
        (
            wav(TALK),
            {"response_format": "verbose_json", "timestamp_granularities[]": "letter"},
            "timestamp_granularities",
        ),
        (wav(TALK), {"language": "klingon"}, "language"),
        (wav(TALK), {"condition_on_previous_text": "yes"}, "condition_on_previous_text"),
        (wav(TALK), {"condition_on_previous_text": ""}, "condition_on_previous_text"),
        (wav(TALK), {"temperature": "1.2"}, "temperature"),
        (wav(TALK), {"temperature": "warm"}, "temperature"),
        (wav(TALK), {"temperature": "nan"}, "temperature"),
        (wav(TALK), {"best_of": "2.5"}, "best_of"),
        (wav(TALK), {"best_of": "0"}, "best_of"),
        (wav(TALK), {"hotwords": "a" * 48}, "hotwords"),
        (wav(TALK), {"hotwords": ",".join("a" * 65)}, "hotwords"),
        (wav(TALK)[:20], {}, "file"),
        (wav(silence(0.0)), {}, "file"),
        (b"this is no audio at all", {}, "file"),
    ],
)
async def test_bad_requests_are_explained(serve, content: bytes, data: dict, param: str | None) -> None:
    server = await serve()
    response = await post(server.http, content, data)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert error["message"]


async def test_text_instead_of_a_file_is_explained(serve) -> None:
    server = await serve()
    async with httpx.AsyncClient() as client:
        response = await client.post(f"{server.http}/v1/audio/transcriptions", files={"file": (None, "hello")})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "file")


async def test_a_file_that_is_too_large_is_refused(serve) -> None:
    server = await serve(max_upload_mb=1)
    response = await post(server.http, wav(silence(40)))
    assert response.status_code == 413


@pytest.mark.parametrize(("error", "status"), [(EngineFailed("gone"), 500), (EngineOverloaded(3, 3), 503)])
async def test_engine_trouble_has_its_status(serve, error, status: int) -> None:
    server = await serve(FakeTranscriber(error=error))
    response = await post(server.http, wav(TALK))
    assert response.status_code == status
    assert response.json()["error"]["code"] == error.code


async def test_too_many_uploads_are_told_to_come_back(serve) -> None:
    transcriber = FakeTranscriber(holds=True)
    server = await serve(transcriber, max_uploads=1)
    first = asyncio.create_task(post(server.http, wav(TALK)))
    await transcriber.opened.wait()
    refused = await post(server.http, wav(TALK))
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    transcriber.release()
    assert (await first).status_code == 200


async def test_a_client_that_goes_away_ends_the_work(serve) -> None:
    """Its windows are withdrawn, and its place is free again."""
    transcriber = FakeTranscriber(holds=True)
    server = await serve(transcriber)
    upload = asyncio.create_task(post(server.http, wav(TALK)))
    async with asyncio.timeout(10):
        await transcriber.opened.wait()
        upload.cancel()
        await server.service._all_gone.wait()
    assert transcriber.n_open == 0


async def test_a_key_is_needed_where_keys_are_set(serve) -> None:
    server = await serve(api_keys="secret")
    assert (await post(server.http, wav(TALK))).status_code == 401
    allowed = await post(server.http, wav(TALK), headers={"Authorization": "Bearer secret"})
    assert allowed.status_code == 200
