"""Files over HTTP: what is sent, the events of the answer, progress, and every way in which it fails."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import tutti
from tests.app.conftest import running
from tests.app.dialects.openai.test_files_endpoint import wav as wav_file
from tests.clients.python.client_fakes import SPOKEN, serve_answer, serve_nothing, sse
from tests.fakes import FakeTranscriber, silence, speech
from tutti.upload import read_lines, upload_url
from tutti_server.app.service.settings import Settings

SEGMENT = {"type": "transcript.text.segment", "utterance": 0, "id": 0, "start": 0.0, "end": 1.0, "text": "Hi."}


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    samples = np.concatenate((silence(0.3), speech([1, 2, 3]), silence(4.0), speech([5, 6]), silence(0.5)))
    path = tmp_path / "speech.wav"
    path.write_bytes(wav_file(samples))
    return path


async def collect(url: str, path: Path | str, **options: Any) -> list[tutti.Event]:
    return [event async for event in tutti.transcribe_file(url, path, **options)]


@pytest.mark.default
async def test_a_file_becomes_the_events_of_a_session(wav: Path) -> None:
    """With a whole server: segments with their words, each utterance after its segments, then `Stopped`."""
    async with running(Settings(port=0, model="fake"), FakeTranscriber()) as server:
        reports: list[tutti.FileProgress] = []
        events = await collect(server.http, wav, words=True, language="en", on_progress=reports.append)
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["Segment", "Utterance", "Segment", "Utterance", "Stopped"]
    transcript = tutti.Transcript()
    for event in events:
        transcript.add(event)
    first, _, second, _, stopped = events
    assert isinstance(first, tutti.Segment) and isinstance(second, tutti.Segment) and isinstance(stopped, tutti.Stopped)
    assert transcript.text() == f"{first.text} {second.text}"
    assert first.words and first.start_s <= first.words[0].start_s < second.start_s
    # A header of 44 bytes before the samples.
    size = 44 + 2 * round(stopped.audio_s * 16000)
    assert (reports[-1].sent_bytes, reports[-1].total_bytes) == (size, size)
    assert reports[-1].final_until_s == reports[-1].audio_s == stopped.audio_s
    assert [report.final_until_s for report in reports] == sorted(report.final_until_s for report in reports)


async def test_a_file_may_grow_while_it_is_sent(tmp_path: Path) -> None:
    """What a recorder adds meanwhile is not sent: the request has said how much comes."""
    path = tmp_path / "talk.mp3"
    path.write_bytes(b"ID3")

    def record(progress: tutti.FileProgress) -> None:
        path.write_bytes(path.read_bytes() + b"more")

    async with serve_answer() as server:
        assert len(await collect(server.url, path, on_progress=record)) == 3
    assert b"\r\n\r\nID3\r\n--" in server.requests[0]


async def test_a_file_that_becomes_shorter_while_it_is_sent_is_named(tmp_path: Path) -> None:
    """The server is there, and the request has said how much comes."""
    path = tmp_path / "talk.mp3"
    path.write_bytes(bytes(200_000))

    def cut(progress: tutti.FileProgress) -> None:
        path.write_bytes(b"ID3")

    async with serve_nothing() as (address, _):
        with pytest.raises(tutti.AudioError, match=r"talk\.mp3: the file became shorter"):
            await collect(f"http://{address}", path, on_progress=cut)


async def test_the_name_of_a_file_may_be_any_bytes(tmp_path: Path) -> None:
    """A system of before Unicode has written it."""
    name = os.fsdecode(b"caf\xe9.mp3")
    (tmp_path / name).write_bytes(b"ID3")
    async with serve_answer() as server:
        assert len(await collect(server.url, tmp_path / name)) == 3
    assert b'filename="caf?.mp3"' in server.requests[0]


async def test_every_option_is_a_field_of_the_form(tmp_path: Path) -> None:
    """And the file goes as it is, whatever its format."""
    (tmp_path / "talk.flac").write_bytes(b"fLaC and more")
    async with serve_answer() as server:
        await collect(
            server.url,
            tmp_path / "talk.flac",
            language="de",
            task="translate",
            words=True,
            prompt="names",
            hotwords=["Ada", "Grace"],
            beam_size=5,
            model="large-v3",
            silence_ms=400,
            api_key="k1",
            interim=False,
            translate=[],
            endpointing=None,
        )
    (request,) = server.requests
    head, _, body = request.decode().partition("\r\n\r\n")
    assert head.startswith("POST /v1/audio/translations HTTP/1.1")
    assert "authorization: bearer k1" in head.lower()
    parts = [part.partition("form-data; name=")[2] for part in body.split("\r\n--")[:-1]]
    fields = [part.replace('"\r\n\r\n', "=").removeprefix('"') for part in parts]
    assert fields[:-1] == [
        "stream=true",
        "response_format=verbose_json",
        "model=large-v3",
        "language=de",
        "prompt=names",
        "keywords=Ada",
        "keywords=Grace",
        "beam_size=5",
        "timestamp_granularities[]=word",
        "chunking_strategy[type]=server_vad",
        "chunking_strategy[silence_duration_ms]=400",
    ]
    assert fields[-1].startswith('file"; filename="talk.flac"') and "fLaC and more" in fields[-1]


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"max_speakers": 3}, ['max_speakers"\r\n\r\n3\r\n']),
        ({"channel_names": ["a", "b"]}, ['channel_names"\r\n\r\na\r\n', 'channel_names"\r\n\r\nb\r\n']),
    ],
)
async def test_speakers_are_asked_for(wav: Path, options: dict[str, Any], fields: list[str]) -> None:
    """The request asks for the format that has them, and for words, which say when each speaks."""
    async with serve_answer() as server:
        await collect(server.url, wav, **options)
    request = server.requests[0].decode(errors="replace")
    fields = [*fields, 'response_format"\r\n\r\ndiarized_json\r\n', 'granularities[]"\r\n\r\nword\r\n']
    assert [each for each in fields if each not in request] == []


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"interim": True}, "interim"),
        ({"endpointing": "manual"}, "endpointing"),
        ({"max_speakers": 2, "task": "translate"}, "task"),
        ({"task": "summarize"}, "task: expected transcribe or translate"),
        ({"max_utterance_s": 20.0}, "max_utterance_s"),
        ({"hotwords": "\ud800"}, "hotwords: expected text of whole characters"),
        ({"resume": tutti.Resume(1.0)}, "resume"),
        ({"started_timeout_s": 3.0}, "started_timeout_s"),
        ({"speed": 1.0, "on_progress": print}, "on_progress"),
        ({"proxy": "gopher://127.0.0.1"}, "proxy"),
        ({"ssl": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}, "ssl"),
    ],
)
async def test_an_option_without_effect_is_refused(wav: Path, options: dict[str, Any], name: str) -> None:
    with pytest.raises(tutti.BadOption, match=name):
        await collect("ws://127.0.0.1:1", wav, **options)


@pytest.mark.parametrize("key", ["", "sk-secret\n", "sk-secret\r\nx-other: 1", " sk-secret", "schlüssel-secret"])
async def test_an_api_key_that_no_header_can_carry_is_refused(wav: Path, key: str) -> None:
    """As for a live session: before anything is sent, and the error does not show the key."""
    async with serve_answer() as server:
        with pytest.raises(tutti.BadOption, match="api_key: expected") as caught:
            await collect(server.url, wav, api_key=key)
    assert "secret" not in repr(caught.value) + str(caught.value)
    assert server.requests == []


async def test_speech_without_text_belongs_to_its_utterance(wav: Path) -> None:
    """Utterances end with the first segment of the next."""
    answer = sse(
        SEGMENT,
        SEGMENT | {"start": 2.0, "end": 3.0, "text": ""},
        SEGMENT | {"utterance": 1, "id": 1, "start": 4.0, "end": 5.0, "text": "Bye."},
        {"type": "transcript.text.done", "duration": 6.0, "speech_duration": 3.0, "words": 2},
    )
    async with serve_answer(answer) as server:
        events = await collect(server.url, wav)
    utterances = [event for event in events if isinstance(event, tutti.Utterance)]
    assert [(each.text, each.uncovered) for each in utterances] == [("Hi.", ((2.0, 3.0),)), ("Bye.", ())]
    assert [type(event).__name__ for event in events] == ["Segment", "Utterance", "Segment", "Utterance", "Stopped"]


async def test_text_of_another_channel_may_begin_during_a_segment(wav: Path) -> None:
    """Segments come in the order in which they begin: no audio after the beginning of the newest one is final."""
    answer = sse(
        SEGMENT | {"start": 1.0, "end": 10.0, "speaker": "agent"},
        SEGMENT | {"start": 2.0, "end": 3.0, "speaker": "caller"},
    )
    async with serve_answer(answer) as server:
        events = tutti.transcribe_file(server.url, wav, channel_names=["agent", "caller"])
        assert isinstance(await anext(events), tutti.Segment)
        utterance = await anext(events)
        assert isinstance(utterance, tutti.Utterance) and utterance.final_until_s == 1.0
        with pytest.raises(tutti.ConnectionLost) as caught:
            assert isinstance(await anext(events), tutti.Segment)
            await anext(events)
    assert caught.value.final_until_s == 2.0


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
async def test_a_text_may_have_line_breaks_of_unicode(wav: Path, line_end: bytes) -> None:
    """JSON has them as they are. A line of the answer ends where a stream of events says."""
    text = "one\u2028two\u2029three\x85four"
    done = {"type": "transcript.text.done", "duration": 1.0, "speech_duration": 1.0, "words": 4}
    async with serve_answer(sse(SEGMENT | {"text": text}, done).replace(b"\n", line_end)) as server:
        segment, *_ = await collect(server.url, wav)
    assert isinstance(segment, tutti.Segment) and segment.text == text


async def test_lines_may_come_in_any_pieces() -> None:
    """Cut inside a letter, or inside the end of a line; the last one may have no end."""
    lines = ["data: a\u2028é", "", "data: b"]

    async def pieces() -> AsyncIterator[bytes]:
        for byte in "\r\n".join(lines).encode():
            yield bytes([byte])

    assert [line async for line in read_lines(httpx.Response(200, content=pieces()))] == lines


async def test_options_that_the_server_ignored_are_a_warning(wav: Path) -> None:
    """By their names here, each once, whatever fields they are sent in."""
    fields = "beam_size, chunking_strategy[silence_duration_ms], chunking_strategy[type], keywords"
    async with serve_answer(head=f"200 OK\r\nX-Tutti-Ignored: {fields}") as server:
        events = await collect(server.url, wav, hotwords=["Ada"], silence_ms=500, beam_size=2)
    expected = [f"{name}: has no effect on this server" for name in ("beam_size", "silence_ms", "hotwords")]
    assert events[:3] == [tutti.ServerWarning("no_effect", message) for message in expected]


@pytest.mark.parametrize(
    ("answer", "expected", "message"),
    [
        ({"head": "401 Unauthorized"}, tutti.Unauthorized, "the API key"),
        ({"head": "503 Full\r\nRetry-After: 7"}, tutti.Overloaded, "try again in 7 s"),
        ({"head": "429 Full\r\nRetry-After: 7"}, tutti.Overloaded, "try again in 7 s"),
        ({"head": "404 Not Found"}, tutti.Refused, "HTTP 404"),
        (
            {"head": "400 Bad", "body": b'{"error": {"code": "invalid_file", "message": "file: expected audio"}}'},
            tutti.AudioError,
            "speech.wav: expected audio",
        ),
        ({"head": "400 Bad", "body": b'{"error": {"message": "%send"}}' % (b"x" * 99)}, tutti.Refused, "end$"),
        ({"body": SPOKEN[:60], "is_cut": True}, tutti.ConnectionLost, "1006"),
        ({"body": sse(SEGMENT)}, tutti.ConnectionLost, "final until 1 s"),
        (
            {"body": sse(SEGMENT, {"error": {"code": "engine_failed", "message": "our fault"}})},
            tutti.SessionError,
            "our fault (.engine_failed.)",
        ),
        (
            {"body": sse(SEGMENT, {"error": {"code": "invalid_file", "message": "file: expected less"}})},
            tutti.AudioError,
            "speech.wav: expected less",
        ),
        ({"body": b"data: {\n\n"}, tutti.ProtocolError, "a JSON object"),
        ({"body": sse(SEGMENT | {"start": "now"})}, tutti.ProtocolError, "segment.start_s"),
        ({"head": "200 OK\r\nX-Tutti-Ignored: response_format"}, tutti.ProtocolError, "streams segments"),
    ],
)
async def test_a_failure_is_an_error_of_this_package(
    wav: Path, answer: dict[str, Any], expected: type[tutti.TuttiError], message: str
) -> None:
    async with serve_answer(**answer) as server:
        with pytest.raises(expected, match=message):
            await collect(server.url, wav)


async def test_no_server_and_no_file(wav: Path, tmp_path: Path) -> None:
    async with serve_answer() as server:
        pass
    with pytest.raises(tutti.Unreachable):
        await collect(server.url, wav)
    with pytest.raises(FileNotFoundError):
        await collect(server.url, tmp_path / "missing.wav")
    with pytest.raises(IsADirectoryError):
        await collect(server.url, tmp_path)


async def test_a_server_that_does_not_answer(wav: Path) -> None:
    async with serve_nothing() as (address, _):
        with pytest.raises(tutti.TimedOut, match="stop_timeout_s"):
            await collect(f"http://{address}", wav, stop_timeout_s=0.05)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ws://h:1", "http://h:1/v1/audio/transcriptions"),
        ("https://h", "https://h/v1/audio/transcriptions"),
        ("wss://h/asr/v1/stream?a=b", "https://h/asr/v1/audio/transcriptions?a=b"),
    ],
)
def test_the_address_for_files(url: str, expected: str) -> None:
    assert upload_url(url, "transcribe") == expected


async def test_an_address_of_something_else_is_refused(wav: Path) -> None:
    with pytest.raises(tutti.BadURL, match="/v1/stream"):
        upload_url("ws://h/v1/listen", "transcribe")
    with pytest.raises(tutti.BadURL, match="hostname"):
        await collect("ws://☃", wav)
