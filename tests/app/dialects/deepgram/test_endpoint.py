"""Deepgram's `/v1/listen` on a real server: keys, refusals, live streams and recordings."""

import asyncio
import hashlib
import json
import threading
import time
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.http11 import Response
from websockets.typing import Subprotocol

from tests.app.conftest import Running, Serve, receive_all, refusal
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.app.media.test_file_decoder import encode
from tests.app.service.test_models import Shelf
from tests.compat.conformance import approximated, supported
from tests.fakes import FakeTranscriber, pcm, said, silence, speech
from tests.made_files import Track, damaged, made_file
from tutti_server.app.dialects.deepgram.endpoint import options_of
from tutti_server.app.dialects.deepgram.live_wire import Deepgram
from tutti_server.app.files import uploads
from tutti_server.app.service.models import Models
from tutti_server.engine.errors import EngineError, EngineFailed, EngineOverloaded

LIVE, FILE = "deepgram-live", "deepgram-prerecorded"
RAW = {"encoding": "linear32", "sample_rate": "16000"}
TALK = np.concatenate((silence(0.3), speech([1, 2, 3, 4]), silence(1.5), speech([5, 6, 7]), silence(0.5)))
TEXT = said([1, 2, 3, 4, 5, 6, 7])


def live_url(server: Running, **query: str) -> str:
    return f"ws://{server.address}/v1/listen?{urlencode(query)}"


async def heard(server: Running, audio: bytes | list[bytes], **query: str) -> list[dict[str, Any]]:
    """All messages of a stream with this audio, which ends with CloseStream."""
    async with connect(live_url(server, **query)) as socket:
        for piece in [audio] if isinstance(audio, bytes) else audio:
            await socket.send(piece)
        await socket.send(json.dumps({"type": "CloseStream"}))
        told = await receive_all(socket)
        assert socket.close_code == 1000
        return told


def text(told: list[dict[str, Any]], channel: int = 0) -> str:
    finals = [each for each in told if each["type"] == "Results" and each["is_final"]]
    texts = [each["channel"]["alternatives"][0]["transcript"] for each in finals if each["channel_index"][0] == channel]
    return " ".join(text for text in texts if text)


async def post(
    server: Running, content: bytes = b"", query: dict[str, Any] | None = None, **headers: Any
) -> httpx.Response:
    return await server.post("/v1/listen", params=query or {}, content=content, headers=headers)


# Live.


@supported(LIVE, "CloseStream")
async def test_a_stream_ends_with_its_finals_and_metadata(server: Running) -> None:
    told = await heard(server, pcm(TALK), **RAW)
    assert text(told) == TEXT
    assert told[-1]["type"] == "Metadata"
    assert told[-1]["sha256"] == hashlib.sha256(pcm(TALK)).hexdigest()
    assert told[-1]["duration"] == pytest.approx(len(TALK) / 16_000, abs=0.03)
    finals = [each for each in told if each["type"] == "Results"]
    ends = [0.0, *(each["start"] + each["duration"] for each in finals)]
    assert [each["start"] for each in finals] == pytest.approx(ends[:-1], abs=0.002)


@supported(LIVE, "no encoding (WAV, Ogg, WebM, MP3, FLAC are recognised)")
@pytest.mark.parametrize(("container", "codec"), [("wav", "pcm_s16le"), ("matroska", "pcm_s16le")])
async def test_containers_are_recognised(server: Running, container: str, codec: str) -> None:
    """By what they hold, as they arrive."""
    content = encode(container, codec, 16_000, TALK)
    told = await heard(server, [content[at : at + 5000] for at in range(0, len(content), 5000)])
    assert text(told) == TEXT
    assert told[-1]["sha256"] == hashlib.sha256(content).hexdigest()


async def test_a_container_keeps_its_own_times_and_its_damage_is_named(serve: Serve) -> None:
    """A recorder has paused for a minute and a half."""
    server = await serve(max_ahead_s=120)
    track = Track(samples=np.tile(TALK, 4), gap=(len(TALK) / 16_000, 90.0))
    content = damaged(made_file("matroska", "pcm_s16le", 16_000, [track]), 0.5, 0.05)
    told = await heard(server, [content[at : at + 5000] for at in range(0, len(content), 5000)])
    assert told[-1]["duration"] == pytest.approx(4 * len(TALK) / 16_000 + 90.0, abs=0.1)
    assert [each["type"] for each in told[-1]["warnings"]] == ["lost_audio"]


@pytest.mark.parametrize("is_live", [True, False])
async def test_a_file_in_place_of_samples_is_noticed(
    is_live: bool, server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """In the answer and in the log: what was declared, and what it looks like."""
    content = made_file("webm", "libopus", 48_000, [Track(samples=TALK)])
    query = {"encoding": "linear16", "sample_rate": "16000"}
    if is_live:
        (noticed,) = (await heard(server, content, **query))[-1]["warnings"]
    else:
        (noticed,) = (await post(server, content, query)).json()["metadata"]["warnings"]
    assert noticed["type"] == "unlikely_format"
    assert "expected pcm_s16le at 16000 Hz, 1 channel, as declared, got what begins as a file: WebM" in str(noticed)
    assert "begins as a file: WebM" in caplog.text


async def test_what_is_no_container_ends_the_stream(server: Running) -> None:
    """A container that never came is an empty stream."""
    async with connect(live_url(server)) as socket:
        await socket.send(b"this is no audio at all " * 4000)
        await socket.send(json.dumps({"type": "CloseStream"}))
        (error,) = await receive_all(socket)
        assert (error["type"], error["variant"]) == ("Error", "DATA-0000")
        assert "FFmpeg" in error["description"]
        assert (socket.close_code, socket.close_reason) == (1008, "DATA-0000")
    (metadata,) = await heard(server, [])
    assert (metadata["type"], metadata["duration"]) == ("Metadata", 0.0)


async def test_a_container_with_hours_of_audio_is_decoded_at_the_pace_of_speech(serve: Serve) -> None:
    """However few bytes they are."""
    server = await serve(max_ahead_s=5.0)
    async with connect(live_url(server)) as socket:
        await socket.send(encode("flac", "flac", 16_000, silence(60.0)))
        told = await receive_all(socket)
        assert (told[-1]["variant"], socket.close_code) == ("too_fast", 1008)


async def test_a_container_whose_client_goes_away_is_let_go(server: Running) -> None:
    async with connect(live_url(server)) as socket:
        await socket.send(encode("wav", "pcm_s16le", 16_000, TALK))
        await socket.send(json.dumps({"type": "Finalize"}))
        await socket.recv()
        threads = [thread for thread in threading.enumerate() if thread.name == "container"]
        assert len(threads) == 1
    async with asyncio.timeout(10):
        await server.service.admission.all_finished.wait()
        await asyncio.to_thread(threads[0].join)


@approximated(LIVE, "multichannel", how="audio in a container needs `channels` too")
@supported(FILE, "multichannel")
@pytest.mark.parametrize("is_raw", [True, False])
async def test_channels_are_transcribed_on_their_own(server: Running, is_raw: bool) -> None:
    """Live, and of a recording, whose container says how many there are."""
    both = np.stack((speech([1, 2, 3]), speech([4, 5, 6])), axis=1).reshape(-1)
    content = pcm(both) if is_raw else wav(both, n_channels=2)
    query = {"multichannel": "true"} | (RAW | {"channels": "2"} if is_raw else {})
    told = await heard(server, content, **query | {"channels": "2"})
    texts = [said([1, 2, 3]), said([4, 5, 6])]
    assert [text(told, channel) for channel in (0, 1)] == texts
    assert {tuple(each["channel_index"]) for each in told[:-1]} == {(0, 2), (1, 2)}
    assert told[-1]["channels"] == 2
    body = (await post(server, content, query | {"utterances": "true"})).json()
    assert [channel["alternatives"][0]["transcript"] for channel in body["results"]["channels"]] == texts
    assert body["metadata"]["channels"] == 2
    assert [each["channel"] for each in body["results"]["utterances"]] == [0, 1]


async def test_the_upgrade_names_what_is_ignored_or_adjusted(server: Running) -> None:
    query = {**RAW, "model": "nova-3", "detect_entities": "true", "numerals": "false", "tiér": "1", "endpointing": "10"}
    async with connect(live_url(server, **query)) as socket:
        assert socket.response is not None
        headers = socket.response.headers
        assert headers["x-tutti-ignored"] == "detect_entities, ti?r"
        assert headers["x-tutti-adjusted"] == "endpointing=300"
        assert headers["dg-request-id"]


@supported(LIVE, "Authorization: Token, Bearer")
@supported(LIVE, "subprotocols token, bearer")
@supported("deepgram-flux", "Authorization: Token, Bearer")
@supported("deepgram-flux", "subprotocols token, bearer")
@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_a_key_is_shown_in_a_header_or_as_a_subprotocol(serve: Serve, version: str) -> None:
    server = await serve(api_keys="secret")
    url = live_url(server, model="flux-general-en", **RAW).replace("v1", version)
    for scheme in ("Token", "Bearer"):
        async with connect(url, additional_headers={"Authorization": f"{scheme} secret"}) as socket:
            assert socket.subprotocol is None
    for scheme in ("token", "bearer"):
        async with connect(
            url, subprotocols=[Subprotocol(each) for each in (scheme, "secret", "x-deepgram-session-id", "1")]
        ) as socket:
            assert socket.subprotocol == scheme
    for options in (
        {},
        {"additional_headers": {"Authorization": "Token wrong"}},
        {"additional_headers": {"Authorization": "Basic secret"}},
        {"subprotocols": ["token", "wrong"]},
        {"subprotocols": ["token"]},
    ):
        check_refusal(await refusal(url, **options), 401, "INVALID_AUTH")


async def test_refusals_come_before_the_upgrade(serve: Serve) -> None:
    """Of other subprotocols and of options, by a full server, and by one that goes down."""
    server = await serve(max_sessions=1)

    async def refused(status: int, code: str, encoding: str = "linear32", **options: Any) -> Any:
        response = await refusal(live_url(server, **RAW | {"encoding": encoding}), **options)
        check_refusal(response, status, code)
        return response.headers

    await refused(400, "Bad Request", subprotocols=[Subprotocol("tutti.v1")])
    await refused(400, "INVALID_QUERY_PARAMETER", encoding="g729")
    async with connect(live_url(server, **RAW)) as socket:
        await socket.send('{"type": "Finalize"}')
        await socket.recv()
        assert (await refused(429, "TOO_MANY_REQUESTS"))["retry-after"] == "5"
    server.service.admission.is_draining = True
    await refused(503, "SERVICE_UNAVAILABLE")


def check_refusal(response: Response, status: int, code: str) -> None:
    assert response.status_code == status
    assert response.body
    body = json.loads(response.body)
    assert body["err_code"] == code
    assert response.headers["dg-error"] == body["err_msg"]
    assert response.headers["dg-request-id"] == body["request_id"]


@supported(LIVE, "KeepAlive (10 s)")
async def test_a_client_that_says_nothing_is_left(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Deepgram.idle_timeout_s == 10.0
    monkeypatch.setattr(Deepgram, "idle_timeout_s", 0.05)
    server = await serve()
    async with connect(live_url(server, **RAW)) as socket:
        (error,) = await receive_all(socket)
        assert (error["type"], error["variant"]) == ("Error", "NET-0001")
        assert (socket.close_code, socket.close_reason) == (1011, "NET-0001")


async def test_a_failing_engine_ends_the_stream(serve: Serve) -> None:
    server = await serve(FakeTranscriber(error=EngineFailed("gone")))
    async with connect(live_url(server, **RAW)) as socket:
        await socket.send(pcm(TALK))
        told = await receive_all(socket)
        assert told[-1]["variant"] == "NET-0000"
        assert socket.close_code == 1011


async def test_a_draining_server_delivers_finals_first(server: Running) -> None:
    async with connect(live_url(server, **RAW, interim_results="true")) as socket:
        await socket.send(pcm(TALK[:16_000]))
        await socket.recv()
        server.server.stop()
        told = await receive_all(socket)
        assert text(told).startswith("w1 w2")
        assert told[-1]["variant"] == "draining"
        assert socket.close_code == 1012


@approximated(LIVE, "POST /v1/auth/grant", how="the token opens live streams only, and is not a JSON Web Token")
async def test_a_token_opens_streams_for_a_while(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await serve(api_keys="secret")
    granted = await grant(server, '{"ttl_seconds": 60}', authorization="Token secret")
    assert (granted.status_code, granted.json()["expires_in"]) == (200, 60)
    token = granted.json()["access_token"]
    url = live_url(server, **RAW)
    async with connect(url, additional_headers={"Authorization": f"Bearer {token}"}):
        pass
    async with connect(url, subprotocols=[Subprotocol("bearer"), token]):
        pass
    check_error(await post(server, wav(TALK), authorization=f"Bearer {token}"), 401, "INVALID_AUTH")
    check_error(await grant(server, authorization=f"Bearer {token}"), 401, "INVALID_AUTH")
    assert (await grant(server, authorization="Token secret")).json()["expires_in"] == 30
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    check_refusal(await refusal(url, subprotocols=[Subprotocol("bearer"), token]), 401, "INVALID_AUTH")


async def test_bad_requests_for_tokens_are_explained(server: Running) -> None:
    for content in ('{"ttl_seconds": 0}', '{"ttl_seconds": 3601}', '{"ttl_seconds": "60"}', "[]", "{"):
        check_error(await grant(server, content), 400, "Bad Request")
    check_error(await grant(server, "\x00" * 80_000), 413, "PAYLOAD_TOO_LARGE")


async def grant(server: Running, content: str = "", **headers: str) -> httpx.Response:
    return await server.post("/v1/auth/grant", content=content, headers=headers)


# Recordings.


async def test_a_recording_keeps_its_own_times_and_its_damage_is_named(server: Running) -> None:
    track = Track(samples=np.tile(TALK, 2), offset_s=4.9)
    content = damaged(made_file("matroska", "pcm_s16le", 16_000, [track]), 0.7, 0.1)
    body = (await post(server, content)).json()
    words = body["results"]["channels"][0]["alternatives"][0]["words"]
    assert words[0]["start"] >= 4.9
    assert body["metadata"]["duration"] == pytest.approx(2 * len(TALK) / 16_000 + 4.9, abs=0.1)
    assert [each["type"] for each in body["metadata"]["warnings"]] == ["lost_audio"]


async def test_a_recording_may_have_several_tracks(server: Running) -> None:
    tracks = [Track(samples=silence(1.0), language="eng"), Track(samples=TALK, language="fre")]
    content = made_file("matroska", "pcm_s16le", 16_000, tracks)
    body = (await post(server, content)).json()
    assert [each["type"] for each in body["metadata"]["warnings"]] == ["other_tracks"]
    body = (await post(server, content, {"track": "fr", "multichannel": "true"})).json()
    assert body["results"]["channels"][0]["alternatives"][0]["transcript"] == TEXT
    for track in ("2", "x" * 1000, "\N{GRINNING FACE}" * 80):
        answer = await post(server, content, {"track": track})
        assert answer.status_code == 400 and answer.json()["err_msg"].startswith("track: expected")


@supported(FILE, "Authorization: Token, Bearer")
@supported(FILE, "body of any type and container")
async def test_a_recording_is_transcribed(serve: Serve) -> None:
    server = await serve(api_keys="secret")
    check_error(await post(server, wav(TALK)), 401, "INVALID_AUTH")
    check_error(await post(server, wav(TALK), authorization="Token wrong"), 401, "INVALID_AUTH")
    headers = {"content-type": "application/octet-stream", "authorization": "Token secret"}
    response = await post(server, wav(TALK), None, **headers)
    assert response.status_code == 200
    body = response.json()
    metadata = body["metadata"]
    assert metadata["request_id"] == response.headers["dg-request-id"]
    assert metadata["sha256"] == hashlib.sha256(wav(TALK)).hexdigest()
    assert metadata["duration"] == pytest.approx(len(TALK) / 16_000, abs=0.03)
    ids = {"transaction_key", "request_id", "sha256", "created"}
    assert set(metadata) == ids | {"duration", "channels", "models", "model_info"}
    (model,) = metadata["models"]
    assert set(metadata["model_info"][model]) == {"name", "version", "arch"}
    (channel,) = body["results"]["channels"]
    (alternative,) = channel["alternatives"]
    assert (alternative["transcript"], alternative["confidence"]) == (TEXT, 0.75)
    assert " ".join(word["word"] for word in alternative["words"]) == TEXT
    assert set(alternative["words"][0]) == {"word", "start", "end", "confidence"}
    times = [word[key] for word in alternative["words"] for key in ("start", "end")]
    assert times == sorted(times) and times[0] == pytest.approx(0.3, abs=0.05)


@supported(FILE, "utterances")
@supported(FILE, "utt_split")
@supported(FILE, "punctuate")
@supported(LIVE, "punctuate")
@approximated(FILE, "smart_format", how="punctuation and case, as the model writes them")
@approximated(LIVE, "smart_format", how="punctuation and case, as the model writes them")
@approximated(FILE, "paragraphs", how="one paragraph for each stretch of speech between pauses")
async def test_words_are_formatted_and_parted_where_that_was_asked_for(server: Running) -> None:
    """By utterances between pauses, and by paragraphs, which come with smart formatting, too."""

    async def answer(audio: bytes = wav(TALK), **query: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The results, and the first alternative."""
        results = (await post(server, audio, query)).json()["results"]
        return results, results["channels"][0]["alternatives"][0]

    for option in ("punctuate", "smart_format"):
        _, alternative = await answer(wav(TALK), **{option: "true"})
        assert [word["punctuated_word"] for word in alternative["words"]] == TEXT.split()
        told = await heard(server, pcm(TALK), **RAW, **{option: "true"})
        assert told[0]["channel"]["alternatives"][0]["words"][0]["punctuated_word"] == "w1"
    for split_s, n_utterances in (("0.8", 2), ("2", 1)):
        utterances = (await answer(utterances="true", utt_split=split_s))[0]["utterances"]
        assert " ".join(each["transcript"] for each in utterances) == TEXT
        assert len({each["id"] for each in utterances}) == len(utterances) == n_utterances
        assert all(each["words"] and each["channel"] == 0 and each["confidence"] == 0.75 for each in utterances)
        assert all(each["start"] < each["end"] for each in utterances)
    talk = wav(np.concatenate((speech([1, 2, 3, 4]), silence(2.5), speech([5, 6, 7]), silence(0.5))))
    for option in ("paragraphs", "smart_format"):
        paragraphs = (await answer(talk, **{option: "true"}))[1]["paragraphs"]
        assert paragraphs["transcript"] == f"{said([1, 2, 3, 4])}\n\n{said([5, 6, 7])}"
        first = paragraphs["paragraphs"][0]
        assert (first["num_words"], first["sentences"][0]["text"]) == (4, said([1, 2, 3, 4]))
        assert first["start"] == first["sentences"][0]["start"]
    results, alternative = await answer(wav(silence(2.0)), utterances="true", paragraphs="true")
    assert (alternative["transcript"], alternative["confidence"], alternative["words"]) == ("", 0.0, [])
    assert (results["utterances"], alternative["paragraphs"]["paragraphs"]) == ([], [])


@supported(FILE, "extra")
@supported(LIVE, "extra")
async def test_extra_comes_back(server: Running) -> None:
    response = await post(server, wav(TALK), {"extra": ["call:7", "side:left:1"]})
    assert response.json()["metadata"]["extra"] == {"call": "7", "side": "left:1"}
    told = await heard(server, b"\0\0\0\0", **RAW, extra="call:7")
    assert told[-1]["extra"] == {"call": "7"}


async def test_the_language_is_detected_among_a_list(serve: Serve) -> None:
    """The detector finds Italian most likely, which is not on the list."""
    server = await serve(FakeTranscriber(detector=lambda _: {"it": 0.6, "de": 0.3, "en": 0.1}))
    response = await post(server, wav(TALK), {"detect_language": ["en", "de"]})
    (channel,) = response.json()["results"]["channels"]
    assert (channel["detected_language"], channel["language_confidence"]) == ("de", 0.75)
    told = await heard(server, pcm(TALK), **RAW, detect_language="true")
    finals = [each["channel"]["alternatives"][0] for each in told if each["type"] == "Results" and each["is_final"]]
    results = (await post(server, wav(TALK), {"language": "multi", "utterances": "true"})).json()["results"]
    (channel,) = results["channels"]
    assert "detected_language" not in channel
    assert [each["languages"] for each in results["utterances"]] == [["de"], ["de"]]
    assert channel["alternatives"][0]["languages"] == ["de"]
    assert channel["alternatives"][0]["words"][0]["language"] == "de"
    assert {language for each in finals for language in each["languages"]} == {"de"}


async def test_a_header_and_a_warning_name_what_is_ignored(server: Running) -> None:
    response = await post(server, wav(TALK), {"dictation": "true", "summarize": "false", "keywords": "w1:2"})
    assert response.headers["x-tutti-ignored"] == "dictation"
    assert response.headers["x-tutti-adjusted"] == "keywords=without weights"
    warnings = response.json()["metadata"]["warnings"]
    assert [each["parameter"] for each in warnings] == ["dictation", "keywords"]


async def test_urls_are_not_fetched_unless_the_operator_allows_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal waits for no more of a body that has come whole."""
    monkeypatch.setattr(uploads, "DISCARD_S", 3600.0)
    server = await serve()
    content = json.dumps({"url": "https://example.com/a.wav"}).encode()
    async with asyncio.timeout(20):
        response = await post(server, content, None, **{"content-type": "application/json; charset=utf-8"})
    assert response.status_code == 400
    assert response.json()["err_msg"].startswith("url: this server connects to no addresses of clients")


async def test_a_recording_that_is_too_large_is_refused(serve: Serve) -> None:
    server = await serve(max_upload_mb=2)
    check_error(await post(server, wav(silence(70))), 413, "PAYLOAD_TOO_LARGE")
    # As much of it as is kept on disk is transcribed.
    assert (await post(server, wav(silence(60)))).status_code == 200


async def test_wrong_recordings_and_trouble_of_the_engine_are_explained(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the reason of the trouble, with the id that the client received."""
    server = await serve()
    for content, query, code in (
        (b"", {}, "Bad Request"),
        (b"this is no audio at all", {}, "Bad Request"),
        (wav(TALK)[:20], {}, "Bad Request"),
        (wav(TALK), {"language": "klingon"}, "INVALID_QUERY_PARAMETER"),
        (wav(TALK), {"encoding": "linear16"}, "INVALID_QUERY_PARAMETER"),
    ):
        check_error(await post(server, content, query), 400, code)
    error: EngineError
    for error, status, code in (
        (EngineFailed("gone"), 500, "INTERNAL_SERVER_ERROR"),
        (EngineOverloaded(3, 3), 429, "TOO_MANY_REQUESTS"),
    ):
        answer = await post(await serve(FakeTranscriber(error=error)), wav(TALK))
        check_error(answer, status, code)
        assert f"[{answer.headers['dg-request-id']}] failed with {error.code}: " in caplog.text


def check_error(response: httpx.Response, status: int, code: str) -> None:
    assert response.status_code == status
    body = response.json()
    assert set(body) == {"err_code", "err_msg", "request_id"}
    assert body["err_code"] == code
    assert response.headers["dg-error"] == body["err_msg"]
    assert response.headers["dg-request-id"] == body["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize("query", [[("model[]", "large")], [("model", "large"), ("model", "")]])
async def test_the_model_is_read_as_other_options_are(query: list[tuple[str, str]]) -> None:
    """A client that names one of several models must not get another one without a word."""
    service: Any = SimpleNamespace(models=Models(FakeTranscriber(), [Shelf().model]), speaker_model=None)
    assert options_of(service, query).start.model == "large"
