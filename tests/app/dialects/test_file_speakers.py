"""Speakers of uploaded files on a real server, in the dialects of OpenAI and Deepgram."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

import tutti
from tests.app.conftest import Running, Serve
from tests.app.dialects.deepgram.test_endpoint import post as post_deepgram
from tests.app.dialects.openai.test_files_endpoint import post, sse, wav
from tests.compat.conformance import approximated, supported
from tests.fakes import said, silence, speech, word
from tutti_server.app.dialects.openai.files_wire import parse_options
from tutti_server.app.dialects.openai.speakers_wire import Spoken, call_record, label, segments
from tutti_server.app.errors import RequestError
from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.speaker_clustering import SpeakerThresholds
from tutti_server.app.voices.speaker_model import SpeakerModel
from tutti_server.app.voices.words_by_speaker import SpokenText

LOW, HIGH = range(1, 11), range(51, 61)
"""The words of two speakers: the fake engine decodes a word from its level, and the fake network a voice."""
TALK = np.concatenate((silence(0.3), speech(LOW), silence(1.0), speech(HIGH), silence(0.5)))


SIDE = np.concatenate((silence(0.3), speech(LOW), silence(4.0)))
OTHER_SIDE = np.concatenate((silence(4.0), speech(HIGH), silence(4.0)))[: len(SIDE)]
CALL = wav(np.stack((SIDE, OTHER_SIDE), 1).reshape(-1), n_channels=2)
"""A call whose sides have a channel each."""


async def embed(stretches: Sequence[Samples]) -> NDArray[np.float32]:
    limit = (np.abs(word(LOW[-1])).max() + np.abs(word(HIGH[0])).max()) / 2
    return np.stack([np.eye(2, dtype=np.float32)[int(np.abs(each).max() > limit)] for each in stretches])


async def start(serve: Serve) -> Running:
    server = await serve()
    server.service.speaker_model = SpeakerModel(embed, SpeakerThresholds(joins=0.5, knows=0.6))
    return server


def data_url(samples: Samples) -> str:
    return "data:audio/wav;base64," + base64.b64encode(wav(samples)).decode()


async def diarized(server: Running, **fields: Any) -> httpx.Response:
    return await post(server.http, wav(TALK), {"response_format": "diarized_json", **fields})


async def test_text_and_words_are_given_by_speaker(serve: Serve) -> None:
    """Words where they are asked for: segments then have their language and confidence, and a stream its length.

    A stream gives text at once, and speakers before its end.
    """
    fields = {"timestamp_granularities[]": ["word"]}
    server = await start(serve)
    whole = (await diarized(server, **fields)).json()
    *deltas, first, second, done = sse(await diarized(server, stream="true", **fields))
    assert {each["type"] for each in deltas} == {"transcript.text.delta"}
    assert [first, second] == whole["segments"]
    assert (whole["task"], whole["text"]) == ("transcribe", said([*LOW, *HIGH]))
    assert [(each["speaker"], each["text"]) for each in (first, second)] == [("A", said(LOW)), ("B", said(HIGH))]
    assert (first["type"], first["id"]) == ("transcript.text.segment", "seg_0")
    assert first["start"] < first["end"] < second["start"] < second["end"] <= whole["duration"]
    assert [word["word"] for word in first["words"]] == said(LOW).split()
    assert first["words"][0]["start"] == first["start"] and first["words"][-1]["end"] == first["end"]
    assert first["language"] == "en" and 0 < first["confidence"] <= 1
    assert done["duration"] >= second["end"] and done["words"] == len(LOW) + len(HIGH)


async def test_the_python_client_gets_the_speakers_of_a_file(serve: Serve, tmp_path: Path) -> None:
    """Each stretch of one speaker is a segment, and an utterance."""
    (tmp_path / "talk.wav").write_bytes(wav(TALK))
    server = await start(serve)
    stream = tutti.transcribe_file(server.http, tmp_path / "talk.wav", max_speakers=2, words=True)
    first, low, second, high, stopped = [event async for event in stream]
    assert isinstance(first, tutti.Segment) and isinstance(second, tutti.Segment)
    assert isinstance(low, tutti.Utterance) and isinstance(high, tutti.Utterance)
    assert isinstance(stopped, tutti.Stopped)
    for pair in ((first, second), (low, high)):
        assert [(each.utterance, each.speaker, each.text) for each in pair] == [
            (0, "A", said(LOW)),
            (1, "B", said(HIGH)),
        ]
    spoken = [[word.speaker for word in each.words] for each in (first, second)]
    assert spoken == [["A"] * len(LOW), ["B"] * len(HIGH)]
    assert stopped.words == len(LOW) + len(HIGH) and stopped.audio_s >= second.end_s


async def test_the_python_client_names_the_sides_of_a_call(serve: Serve, tmp_path: Path) -> None:
    """A side has the number of its channel."""
    sides = np.stack((np.zeros_like(TALK), TALK), 1).reshape(-1)
    (tmp_path / "call.wav").write_bytes(wav(sides, n_channels=2))
    stream = tutti.transcribe_file((await start(serve)).http, tmp_path / "call.wav", channel_names=["agent", "caller"])
    segments = [event async for event in stream if isinstance(event, tutti.Segment)]
    assert {(each.channel, each.speaker) for each in segments} == {(1, "caller")}


@supported("openai-rest", "known_speaker_names[]")
@supported("openai-rest", "known_speaker_references[]")
async def test_clients_say_how_many_speakers_there_are_and_who(serve: Serve) -> None:
    server = await start(serve)
    body = (await diarized(server, max_speakers="1")).json()
    assert {each["speaker"] for each in body["segments"]} == {"A"}
    known = {"known_speaker_names[]": ["agent"], "known_speaker_references[]": [data_url(speech([52] * 10))]}
    body = (await diarized(server, **known)).json()
    assert [each["speaker"] for each in body["segments"]] == ["A", "agent"]


async def test_the_sides_of_a_call_have_the_names_that_the_client_gives(serve: Serve) -> None:
    """Each channel is a speaker. The text is in the order of time."""
    server = await start(serve)
    names = {"channel_names[]": ["agent", "caller"]}
    body = (await post(server.http, CALL, {"response_format": "diarized_json", **names})).json()
    assert [(each["speaker"], each["text"]) for each in body["segments"]] == [
        ("agent", said(LOW)),
        ("caller", said(HIGH)),
    ]
    assert body["text"] == said([*LOW, *HIGH]) and body["duration"] == pytest.approx(len(SIDE) / 16_000, abs=0.01)
    refused = await diarized(server, **names)
    assert refused.status_code == 400
    assert "channel_names: expected 1, one for each channel, got 2" in refused.json()["error"]["message"]


async def test_a_stream_ends_with_the_same_text_of_a_call_as_an_answer_has(serve: Serve) -> None:
    """Its deltas come as they are decoded: the side that begins first ends last here."""
    server = await start(serve)
    side = np.concatenate((silence(0.3), speech([*LOW, *LOW]), silence(4.0)))
    other = np.concatenate((silence(1.0), speech(HIGH[:2]), silence(30.0)))[: len(side)]
    call = wav(np.stack((side, other), 1).reshape(-1), n_channels=2)
    fields = {"response_format": "diarized_json", "channel_names[]": ["agent", "caller"]}
    body = (await post(server.http, call, fields)).json()
    first, *_, done = sse(await post(server.http, call, {**fields, "stream": "true"}))
    assert first["delta"] == said(HIGH[:2])
    assert done["text"] == body["text"] == said([*LOW, *LOW, *HIGH[:2]])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"channel_names[]": ["a", "a"]}, "names that differ"),
    ({"channel_names[]": ["a"], "response_format": "json"}, "expected response_format diarized_json"),
    ({"channel_names[]": ["a", "b"], "max_speakers": "2"}, "none with channel_names"),
    ({"max_speakers": "11"}, "a whole number from 1 to 10"),
    ({"max_speakers": "2", "response_format": "json"}, "expected response_format diarized_json"),
    ({"known_speaker_names[]": ["a"]}, "as many references as names"),
    ({"known_speaker_names[]": ["a", "a"], "known_speaker_references[]": ["data:,"] * 2}, "names that differ"),
    ({"known_speaker_names[]": ["a"], "known_speaker_references[]": ["data:,x"]}, "a data URL in base64"),
    ({"known_speaker_names[]": ["a"], "known_speaker_references[]": [data_url(speech([3] * 4))]}, "2 to 10 s"),
    ({"known_speaker_names[]": ["a"], "response_format": "json"}, "expected response_format diarized_json"),
    ({"response_format": "call_record", "stream": "true"}, "stream: expected none with response_format call_record"),
]
"""Fields, and a part of the error that they cause."""


async def test_what_cannot_be_done_about_speakers_is_refused(serve: Serve) -> None:
    server = await start(serve)
    for fields, message in REFUSED:
        response = await diarized(server, **fields)
        assert response.status_code == 400 and message in response.json()["error"]["message"], fields


async def test_without_a_network_speakers_are_refused(serve: Serve) -> None:
    server = await serve()
    server.service.speaker_model = None
    assert "does not tell speakers apart" in (await diarized(server)).json()["error"]["message"]
    refused = await diarized(server, response_format="call_record")
    assert refused.status_code == 400 and "call_record is not offered" in refused.json()["error"]["message"]
    response = await post_deepgram(server, wav(TALK), {"diarize": "true", "diarize_model": "v2"})
    assert response.headers["x-tutti-ignored"] == "diarize, diarize_model"


def test_translations_know_no_speakers() -> None:
    """An error lists the formats of its task."""
    with pytest.raises(RequestError, match=r"expected one of json, .*, vtt, got 'diarized_json'"):
        parse_options([("response_format", "diarized_json")], "translate", tells_speakers=True)
    with pytest.raises(RequestError, match=r"vtt, diarized_json, call_record, .*, got 'sub'"):
        parse_options([("response_format", "sub")], "transcribe", tells_speakers=True)


@supported("deepgram-prerecorded", "diarize")
@approximated(
    "deepgram-prerecorded",
    "diarize_model",
    how="every version is the server's one network; has no effect with `multichannel`, and is named as such",
)
async def test_deepgram_words_utterances_and_paragraphs_have_speakers(serve: Serve) -> None:
    query = {"diarize_model": "latest", "utterances": "true", "utt_split": "5", "paragraphs": "true"}
    results = (await post_deepgram(await start(serve), wav(TALK), query)).json()["results"]
    (alternative,) = results["channels"][0]["alternatives"]
    assert [each["speaker"] for each in alternative["words"]] == [0] * 10 + [1] * 10
    assert all(0.5 <= each["speaker_confidence"] <= 1 for each in alternative["words"])
    assert [(each["speaker"], each["transcript"]) for each in results["utterances"]] == [
        (0, said(LOW)),
        (1, said(HIGH)),
    ]
    assert [each["speaker"] for each in alternative["paragraphs"]["paragraphs"]] == [0, 1]


async def test_deepgram_refuses_an_unknown_diarizer_and_names_what_has_no_effect(serve: Serve) -> None:
    server = await start(serve)
    response = await post_deepgram(server, wav(TALK), {"diarize_model": "v9"})
    assert (response.status_code, "latest, v1, v2" in response.text) == (400, True)
    response = await post_deepgram(server, wav(TALK), {"diarize": "true", "multichannel": "true"})
    assert response.headers["x-tutti-ignored"] == "diarize"


def test_unknown_speakers_have_letters() -> None:
    assert [label(each, {1: "agent"}) for each in range(4)] == ["A", "agent", "B", "C"]
    assert [label(each, {}) for each in (25, 26, 27, 52)] == ["Z", "AA", "AB", "BA"]


def test_a_known_speaker_who_is_named_like_a_letter_is_no_one_else() -> None:
    """Neither in the text nor in the record of a call, and also if the known speaker does not take part."""
    texts = [SpokenText(start_s=each, end_s=each + 1.0, speaker=each, text="Hello.") for each in range(3)]
    for names, expected in (({0: "A"}, ["A", "C", "D"]), ({}, ["C", "D", "E"])):
        spoken = Spoken(texts, names, known=("A", "B"))
        assert [each["speaker"] for each in segments(spoken, has_words=False)] == expected
        assert [each.name for each in call_record(spoken, 3.0).speakers] == expected


async def test_a_stranger_does_not_get_the_name_of_someone_silent(serve: Serve) -> None:
    server = await start(serve)
    known = {"known_speaker_names[]": ["A"], "known_speaker_references[]": [data_url(speech([52] * 10))]}
    body = (await post(server.http, wav(speech(LOW)), {"response_format": "diarized_json", **known})).json()
    assert [each["speaker"] for each in body["segments"]] == ["B"]


async def test_a_call_has_a_record(serve: Serve) -> None:
    """Of its sides by name where each has a channel; of voices that are told apart where both are on one."""
    server = await start(serve)
    fields = {"response_format": "call_record", "channel_names[]": ["agent", "caller"]}
    record = (await post(server.http, CALL, fields)).json()
    assert [(each["speaker"], each["text"]) for each in record["turns"]] == [
        ("agent", said(LOW)),
        ("caller", said(HIGH)),
    ]
    assert [(each["name"], each["words"]) for each in record["speakers"]] == [("agent", 10), ("caller", 10)]
    assert [each["word"] for each in record["turns"][0]["words"]] == said(LOW).split()
    assert record["duration_s"] == pytest.approx(len(SIDE) / 16_000, abs=0.01)
    assert record["usage"]["type"] == "duration"

    one = await diarized(server, response_format="call_record_vtt")
    assert one.headers["content-type"].startswith("text/vtt")
    assert f"<v A>{said(LOW)}" in one.text and f"<v B>{said(HIGH)}" in one.text
    assert f"A: {said(LOW)}" in (await diarized(server, response_format="call_record_srt")).text


async def test_a_record_says_when_that_was_said_which_is_redacted(serve: Serve) -> None:
    """With the one who said it: by channel, and by voice."""
    server = await start(serve)
    names = [said([LOW[-2]]), said([HIGH[-2]])]
    rules = {"response_format": "call_record", "text_rules": json.dumps({"redact_names": names})}
    channels = np.stack((TALK, np.roll(TALK, len(TALK) // 3)), 1).reshape(-1)
    one = (await diarized(server, **rules)).json()
    two = (await post(server.http, wav(channels, n_channels=2), {**rules, "channel_names[]": ["a", "b"]})).json()
    assert [(each["kind"], each["speaker"]) for each in one["redactions"]] == [("name", "A"), ("name", "B")]
    assert sorted(each["speaker"] for each in two["redactions"]) == ["a", "a", "b", "b"]
    for record in (one, two):
        for redaction in record["redactions"]:
            words = [
                (word["start_s"], word["end_s"])
                for turn in record["turns"]
                for word in turn["words"]
                if turn["speaker"] == redaction["speaker"] and word["word"] == "[NAME]"
            ]
            assert (redaction["start_s"], redaction["end_s"]) in words
