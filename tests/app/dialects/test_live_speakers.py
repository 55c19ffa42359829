"""Speakers of live sessions on a real server, in each dialect that has a word for them."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect

import tutti
from tests.app.conftest import Serve, refusal
from tests.app.dialects.deepgram.test_endpoint import live_url
from tests.app.dialects.test_file_speakers import HIGH, LOW, start
from tests.compat.conformance import approximated
from tests.fakes import pcm, said, silence, speech
from tutti_server.app.dialects.deepgram.options import parse
from tutti_server.app.errors import BadStart
from tutti_server.app.media.pcm import Samples
from tutti_server.app.voices.speaker_clustering import SpeakerThresholds
from tutti_server.app.voices.speaker_model import SpeakerModel

FIRST = np.concatenate((silence(0.3), speech(LOW)))
SECOND = np.concatenate((silence(1.0), speech(HIGH)))
END = silence(1.0)


def pieces(*parts: Samples) -> list[bytes]:
    audio = np.concatenate(parts)
    return [pcm(audio[at : at + 1600]) for at in range(0, len(audio), 1600)]


async def send(socket: ClientConnection, *parts: Samples) -> None:
    for piece in pieces(*parts):
        await socket.send(piece)


async def receive_until(socket: ClientConnection, is_last: Any) -> list[dict[str, Any]]:
    """The messages up to one of which this holds."""
    told: list[dict[str, Any]] = []
    async with asyncio.timeout(20):
        while not (told and is_last(told[-1])):
            told.append(json.loads(await socket.recv()))
    return told


def middle(audio: Samples) -> float:
    """The middle of the speech in `audio`, whose silence comes first, in seconds."""
    begin = int(np.flatnonzero(audio)[0])
    return (begin + len(audio)) / 2 / 16_000


async def test_native_sessions_get_labels_and_their_revisions(serve: Serve) -> None:
    server = await start(serve)
    options: tutti.ConnectOptions = {"encoding": "pcm_f32le", "max_speakers": 3, "words": True, "api_key": None}
    async with tutti.connect(f"ws://{server.address}", **options) as session:
        for piece in pieces(FIRST, SECOND, END):
            await session.send(piece)
        await session.stop()
        async with asyncio.timeout(20):
            told = [event async for event in session]
    # A label that was known before its text is in the text. What comes later replaces what was said of its time.
    labels: list[tuple[float, float, str]] = []
    for event in told:
        if isinstance(event, tutti.Segment):
            labels += [(word.start_s, word.end_s, word.speaker) for word in event.words or () if word.speaker]
        elif isinstance(event, tutti.Speakers):
            labels += [(span.from_s, span.until_s, span.speaker) for span in event.spans]
    for middle_s, speaker in ((middle(FIRST), "A"), (len(FIRST) / 16_000 + middle(SECOND), "B")):
        assert [label for *times, label in labels if times[0] <= middle_s < times[1]][-1:] == [speaker]
    assert isinstance(told[-1], tutti.Stopped)
    last = [event for event in told if isinstance(event, tutti.Utterance)][-1]
    assert last.voices and last.voices.startswith("v2.")


async def test_a_lost_session_keeps_its_speakers(serve: Serve) -> None:
    """Another server that gets the voices gives the second speaker the same letter."""
    server = await start(serve)
    start_message: dict[str, Any] = {
        "type": "start",
        "audio": {"encoding": "pcm_f32le"},
        "speakers": {},
        "resumes": True,
    }
    async with connect(server.stream) as socket:
        await socket.send(json.dumps(start_message))
        await send(socket, FIRST, SECOND, END)
        # Labels may come after the text: speech follows, whose end comes after them.
        await receive_until(socket, lambda each: "B" in {span["speaker"] for span in each.get("spans", ())})
        await send(socket, speech(HIGH[:4]), END)
        last = (await receive_until(socket, lambda each: each["type"] == "utterance" and each["start_s"] > 5))[-1]
    resume = {"from_s": last["resume_from_s"], "voices": last["voices"]}
    async with connect(server.stream) as socket:
        await socket.send(json.dumps({**start_message, "resume": resume}))
        await send(socket, speech(HIGH), END)
        (*_, speakers) = await receive_until(socket, lambda each: each["type"] == "speakers")
    assert {span["speaker"] for span in speakers["spans"]} == {"B"}


@approximated("deepgram-live", "diarize", how="a final has the speakers that are known when it goes out")
@approximated(
    "deepgram-live",
    "diarize_model",
    how="every version is the server's one network; has no effect with `multichannel`, and is named as such",
)
async def test_deepgram_words_have_the_speakers_that_are_known(serve: Serve) -> None:
    """A final whose label comes late has the speaker before it; later finals have theirs."""
    server = await start(serve)
    raw = {"encoding": "linear32", "sample_rate": "16000"}
    async with connect(live_url(server, **raw, diarize_model="latest", max_speakers="4")) as socket:
        assert socket.response and "x-tutti-ignored" not in socket.response.headers
        known: dict[str, set[int]] = {}
        for _ in range(100):
            for part in (FIRST, SECOND):
                await send(socket, part, END)
                told = await receive_until(socket, lambda each: each.get("speech_final", False))
                for word in (word for message in told for word in words_of(message) if "speaker" in word):
                    known.setdefault(word["word"], set()).add(word["speaker"])
            # On a busy machine, labels of many finals come late.
            if 1 in known.get(said(HIGH[4:5]), ()) and 0 in known.get(said(LOW[4:5]), ()):
                break
    assert 1 in known[said(HIGH[4:5])] and 0 in known[said(LOW[4:5])]


def words_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    words: list[dict[str, Any]] = message["channel"]["alternatives"][0]["words"] if message["type"] == "Results" else []
    return words


async def test_deepgram_names_what_has_no_effect_and_refuses_what_it_documents_for_recordings(serve: Serve) -> None:
    server = await start(serve)
    raw = {"encoding": "linear32", "sample_rate": "16000"}
    async with connect(live_url(server, **raw, diarize="true", multichannel="true", channels="2")) as socket:
        assert socket.response and socket.response.headers["x-tutti-ignored"] == "diarize"
    async with connect(live_url(server, **raw, max_speakers="3")) as socket:
        assert socket.response and socket.response.headers["x-tutti-ignored"] == "max_speakers"
    assert b"one of latest, v1" in (await refusal(live_url(server, **raw, diarize_model="v2"))).body
    server.service.speaker_model = None
    async with connect(live_url(server, **raw, diarize="true")) as socket:
        assert socket.response and socket.response.headers["x-tutti-ignored"] == "diarize"


def test_deepgram_recordings_take_the_most_speakers() -> None:
    query = [("diarize", "true"), ("max_speakers", "2")]
    assert parse(query, ("en",), is_live=False, tells_speakers=True).max_speakers == 2
    with pytest.raises(BadStart, match="an integer from 1 to 10"):
        parse([("diarize", "true"), ("max_speakers", "0")], ("en",), is_live=False, tells_speakers=True)


async def realtime(socket: ClientConnection, model: str, *parts: Samples) -> AsyncIterator[dict[str, Any]]:
    """The segments of a session with this model, which ends a turn after the last part."""
    source = {"transcription": {"model": model}, "format": {"type": "audio/pcm", "rate": 16_000}}
    session = {"type": "transcription", "audio": {"input": source}}
    await socket.send(json.dumps({"type": "session.update", "session": session}))
    for part in parts:
        pcm16 = (part * 32767).astype("<i2").tobytes()
        for at in range(0, len(pcm16), 6400):
            audio = base64.b64encode(pcm16[at : at + 6400]).decode()
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        for message in await receive_until(socket, lambda each: each["type"].endswith(".completed")):
            yield message


@approximated(
    "openai-realtime",
    "transcription.model: gpt-4o-transcribe-diarize",
    how="segments name the speakers that are known when they go out; another model of that name is not run",
)
@pytest.mark.default
async def test_realtime_segments_name_their_speakers_with_the_diarizing_model(serve: Serve) -> None:
    server = await start(serve)
    url = f"ws://{server.address}/v1/realtime?intent=transcription"
    turns = [np.concatenate((part, END)) for part in (FIRST, speech(HIGH))]
    for model, expected in (("gpt-4o-transcribe-diarize", {"A", "B"}), ("whisper-1", {""})):
        segments: list[dict[str, Any]] = []
        async with connect(url) as socket:
            # On a busy machine, labels of many turns come late: then both speak again.
            for _ in range(100):
                told = [message async for message in realtime(socket, model, *turns)]
                segments += [each for each in told if each["type"].endswith(".segment")]
                if expected <= {each["speaker"] for each in segments}:
                    break
        assert {each["speaker"] for each in segments} - {""} == expected - {""}
        assert len({each["id"] for each in segments}) == len(segments)


async def test_a_network_that_fails_costs_labels_only(serve: Serve) -> None:
    server = await start(serve)

    async def fail(stretches: object) -> Any:
        raise RuntimeError("broken")

    server.service.speaker_model = SpeakerModel(fail, SpeakerThresholds(joins=0.5, knows=0.6))
    async with connect(server.stream) as socket:
        await socket.send(json.dumps({"type": "start", "audio": {"encoding": "pcm_f32le"}, "speakers": {}}))
        await send(socket, FIRST, END)
        await socket.send(json.dumps({"type": "stop"}))
        told = await receive_until(socket, lambda each: each["type"] == "stopped")
    assert "speakers_failed" in {each["code"] for each in told if each["type"] == "warning"}
    assert said(LOW) in [each["text"] for each in told if each["type"] == "utterance"]
