"""OpenAI Realtime without a network: every option, every event, and every refusal."""

import base64
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compat.conformance import approximated, refused, supported
from tests.fakes import MODEL, said, silence, speech
from tests.talk import Talk
from tutti_server.app.dialects.openai import realtime_options
from tutti_server.app.dialects.openai.realtime_fields import BadField
from tutti_server.app.dialects.openai.realtime_options import WORDS, RealtimeSettings, named
from tutti_server.app.dialects.openai.realtime_session import RealtimeSession
from tutti_server.app.dialects.openai.realtime_wire import OpenAIRealtime
from tutti_server.app.errors import CLOSE_DRAINING, CLOSE_OVERLOADED, CLOSE_POLICY, LimitExceeded
from tutti_server.app.media.pcm import AudioFormat, Samples
from tutti_server.app.session.core.effects import Close
from tutti_server.app.session.messages import commands, events
from tutti_server.engine import api
from tutti_server.engine.errors import EngineFailed

DIALECT = "openai-realtime"
# At 16 kHz the made-up speech is not resampled, and is heard to the sample.
PCM_16K = {"type": "audio/pcm", "rate": 16000}


def open_talk(
    *, requested_model: str | None = None, is_flat: bool = False, model: api.ModelInfo = MODEL, answers: bool = True
) -> Talk:
    settings, warnings = named(RealtimeSettings(), requested_model, lambda _: model)
    session = RealtimeSession("x", settings, is_flat, lambda _: model)
    dialect = OpenAIRealtime(session, warnings=warnings, max_text_chars=1 << 20)
    return Talk(dialect, model, answers=answers)


@pytest.fixture
def talk() -> Talk:
    return open_talk()


def test_an_alias_of_the_model_needs_no_warning() -> None:
    """What clients of such a model expect holds for it, too."""
    model = replace(MODEL, aliases=("gpt-4o-transcribe-diarize",))
    settings, warnings = named(RealtimeSettings(), "gpt-4o-transcribe-diarize", lambda _: model)
    assert settings.requested_model == "gpt-4o-transcribe-diarize" and not warnings
    assert named(RealtimeSettings(), "other", lambda _: model)[1]


def update(turn_detection: Any = ..., include: Any = ..., **source: Any) -> dict[str, Any]:
    """`session.update` in the GA shape, at 16 kHz by default."""
    if turn_detection is not ...:
        source["turn_detection"] = turn_detection
    session: dict[str, Any] = {"type": "transcription", "audio": {"input": {"format": PCM_16K} | source}}
    if include is not ...:
        session["include"] = include
    return {"type": "session.update", "session": session}


def pcm16(samples: Samples) -> bytes:
    return np.round(samples * 32768).astype("<i2").tobytes()


def append(samples: Samples) -> dict[str, Any]:
    return append_bytes(pcm16(samples))


def append_bytes(data: bytes) -> dict[str, Any]:
    return {"type": "input_audio_buffer.append", "audio": base64.b64encode(data).decode()}


COMMIT = {"type": "input_audio_buffer.commit"}
CLEAR = {"type": "input_audio_buffer.clear"}
TURN = np.concatenate((speech([1, 2, 3, 4]), silence(1.0)))


def hear(talk: Talk, samples: Samples) -> None:
    """Audio in pieces of 100 ms."""
    for at in range(0, len(samples), 1600):
        talk.say(append(samples[at : at + 1600]))


def source_of(message: dict[str, Any]) -> dict[str, Any]:
    source: dict[str, Any] = message["session"]["audio"]["input"]
    return source


def warned(message: dict[str, Any]) -> list[str]:
    return [warning["param"] for warning in message.get("warnings", [])]


def completed(talk: Talk) -> list[str]:
    return [message["transcript"] for message in talk.of("conversation.item.input_audio_transcription.completed")]


def check_stream(talk: Talk) -> None:
    """Assert what is true for every stream of server events."""
    ids = [message["event_id"] for message in talk.said]
    assert len(set(ids)) == len(ids)
    deltas: dict[str, str] = {}
    segments: dict[str, str] = {}
    committed: list[str] = []
    for message in talk.said:
        item: str = message.get("item_id", "")
        match message["type"]:
            case "input_audio_buffer.committed":
                assert message["previous_item_id"] == (committed[-1] if committed else None)
                committed.append(item)
            case "conversation.item.input_audio_transcription.delta":
                assert message["delta"]
                deltas[item] = deltas.get(item, "") + message["delta"]
            case "conversation.item.input_audio_transcription.segment":
                segments[item] = segments.get(item, "") + message["text"]
                assert message["start"] <= message["end"]
            case "conversation.item.input_audio_transcription.completed":
                assert item in committed
                assert deltas.pop(item, "") == message["transcript"] == segments.pop(item, "")
                assert message["usage"]["type"] == "duration" and message["usage"]["seconds"] >= 0


# Turns.


@pytest.mark.parametrize("name", ["format", "transcription", "turn_detection", "noise_reduction"])
def test_an_empty_text_is_no_object(talk: Talk, name: str) -> None:
    """It changes nothing, as if it were not given."""
    talk.say(update(turn_detection=None))
    (before,), (after,) = talk.say(update()), talk.say(update(**{name: ""}))
    assert after["type"] == "session.updated"
    assert after["session"]["audio"] == before["session"]["audio"]


def test_an_empty_text_is_no_name_no_list_and_no_format(talk: Talk) -> None:
    """Those in force stay."""
    transcription = {"model": "gpt-live-transcribe", "languages": ["en", "de"], "keywords": ["tutti"]}
    session = {"input_audio_format": "g711_alaw", "input_audio_transcription": transcription, "include": [WORDS]}
    (before,) = talk.say({"type": "transcription_session.update", "session": session})
    session = {"input_audio_format": "", "input_audio_transcription": dict.fromkeys(transcription, ""), "include": ""}
    (after,) = talk.say({"type": "transcription_session.update", "session": session})
    assert after["session"] == before["session"] and after["session"]["include"] == [WORDS]


def test_an_empty_commit_is_an_error_that_changes_nothing(talk: Talk) -> None:
    """As in OpenAI's API, with the client's id of the event that was wrong."""
    talk.say(update(turn_detection=None))
    hear(talk, speech([1])[:1440])
    (error,) = talk.say(COMMIT | {"event_id": "e1"})
    assert error["error"]["code"] == "input_audio_buffer_commit_empty"
    assert error["error"]["event_id"] == "e1" and "90 ms" in error["error"]["message"]
    hear(talk, silence(0.03))
    talk.say(COMMIT)
    assert len(completed(talk)) == 1


def test_the_least_audio_may_come_in_any_pieces(talk: Talk) -> None:
    """Ten times 0.01 s is a little less than 0.1 s in floats."""
    talk.say(update(turn_detection=None))
    for _ in range(10):
        talk.say(append(silence(0.01)))
    talk.say(COMMIT)
    assert not talk.of("error") and len(completed(talk)) == 1
    talk.say(append(silence(0.0999)))
    (error,) = talk.say(COMMIT)
    assert "99.875 ms" in error["error"]["message"]


def test_clearing_leaves_what_was_committed() -> None:
    talk = open_talk(answers=False)
    talk.say(update(turn_detection=None))
    hear(talk, speech([1, 2]))
    talk.say(COMMIT)
    talk.say(CLEAR)
    talk.answer_all()
    assert completed(talk) == [said([1, 2])]
    (error,) = talk.say(COMMIT)
    assert error["error"]["code"] == "input_audio_buffer_commit_empty"


@pytest.mark.parametrize(("end", "turns"), [(COMMIT, [[1, 2], [3, 4]]), (CLEAR, [[3, 4]])])
def test_half_a_sample_ends_with_its_turn(talk: Talk, end: dict[str, Any], turns: list[list[int]]) -> None:
    """The audio after a commit or a clear begins with a whole sample."""
    talk.say(update(turn_detection=None))
    talk.say(append_bytes(pcm16(speech([1, 2])) + b"\x01"))
    talk.say(end)
    hear(talk, speech([3, 4]))
    talk.say(COMMIT)
    assert completed(talk) == [said(numbers) for numbers in turns]


def test_half_a_sample_ends_with_its_format(talk: Talk) -> None:
    """A commit after the change adds nothing to the audio."""
    talk.say(update(format={"type": "audio/pcm", "rate": 24000}, turn_detection=None))
    talk.say(append_bytes(b"\x01"))
    talk.say(update())
    for numbers in ([1, 2], [3, 4]):
        hear(talk, speech(numbers))
        talk.say(COMMIT)
    assert completed(talk) == [said([1, 2]), said([3, 4])]


def test_a_commit_may_divide_a_sample_where_the_server_ends_turns(talk: Talk) -> None:
    """The client streams without a pause, and its messages may be cut anywhere."""
    talk.say(update())
    data = pcm16(np.concatenate((silence(0.5), TURN)))
    talk.say(append_bytes(data[:8001]))
    talk.say(COMMIT)
    talk.say(append_bytes(data[8001:]))
    assert completed(talk)[-1] == said([1, 2, 3, 4])


@pytest.mark.parametrize(("is_flat", "kind"), [(False, "session.updated"), (True, "transcription_session.updated")])
def test_audio_in_another_format_is_a_warning(is_flat: bool, kind: str) -> None:
    """Many clients give up after an `error`, and the session goes on."""
    settings, _ = named(RealtimeSettings(), None, lambda _: MODEL)
    dialect = OpenAIRealtime(
        RealtimeSession("x", settings, is_flat, lambda _: MODEL), warnings=[], max_text_chars=1 << 20
    )
    (told,) = map(json.loads, dialect.write(events.Notice("unlikely_format", "audio: expected x")))
    assert (told["type"], told["session"]["id"]) == (kind, "sess_x")
    assert told["warnings"] == [{"param": "audio", "code": "unlikely_format", "message": "audio: expected x"}]
    assert not list(dialect.write(events.Notice("other_tracks", "file: expected x")))


@supported(DIALECT, "conversation.item.input_audio_transcription.failed")
def test_items_that_cannot_be_read_fail() -> None:
    """There is no `error`, after which many clients give up: the close code 1011 makes them reconnect."""
    talk = open_talk(answers=False)
    talk.say(update(turn_detection=None))
    hear(talk, speech([1, 2]))
    talk.say(COMMIT)
    talk.perform(talk.session.engine_error(len(talk.windows) - 1, EngineFailed("gone")))
    (failed,) = talk.of("conversation.item.input_audio_transcription.failed")
    assert failed["item_id"] == "item_x_0" and failed["error"]["type"] == "server_error"
    assert not talk.of("error") and not completed(talk)
    assert talk.closes[0].code == 1011


def test_draining_completes_open_items(talk: Talk) -> None:
    """Only the close code shows that the client should reconnect."""
    talk.say(update(turn_detection=None))
    hear(talk, speech([1, 2]))
    talk.perform(talk.session.drain())
    talk.answer_all()
    assert completed(talk) == [said([1, 2])]
    assert not talk.of("error") and talk.closes == [Close(CLOSE_DRAINING, "draining")]


@pytest.mark.parametrize("code", ["overloaded", "session_limit", "no_engine"])
def test_a_client_without_room_learns_it_by_the_close_code_alone(talk: Talk, code: str) -> None:
    """The room may be gone between the upgrade and the first audio. Many clients give up after an `error`."""
    talk.perform(talk.session.fail(LimitExceeded(code, "no room", CLOSE_OVERLOADED)))
    assert not talk.of("error") and talk.closes == [Close(CLOSE_OVERLOADED, code)]


def test_faults_of_the_client_are_errors(talk: Talk) -> None:
    talk.perform(talk.session.end(LimitExceeded("too_big", "expected less", CLOSE_POLICY)))
    (error,) = talk.of("error")
    assert error["error"]["code"] == "too_big" and talk.closes


# Options.


@supported(DIALECT, "session.update (GA)")
def test_absent_keys_keep_their_value_and_null_takes_it_back(talk: Talk) -> None:
    talk.say(update(transcription={"language": "de", "prompt": "One.", "keywords": ["Kowalski"]}))
    (updated,) = talk.say({"type": "session.update", "session": {"type": "transcription"}})
    assert updated["type"] == "session.updated"
    assert source_of(updated)["transcription"] == {
        "model": "fake",
        "language": "de",
        "prompt": "One.",
        "keywords": ["Kowalski"],
    }
    assert source_of(updated)["format"] == PCM_16K
    (updated,) = talk.say(update(format=None, transcription={"language": None, "prompt": None, "keywords": None}))
    assert source_of(updated)["transcription"] == {"model": "fake", "language": None, "prompt": ""}
    assert source_of(updated)["format"]["rate"] == 24000
    assert talk.say(update(include=[WORDS]))[0]["session"]["include"] == [WORDS]
    assert talk.say(update(include=None))[0]["session"]["include"] == []


def test_flat_keys_in_session_update_are_the_older_shape_too() -> None:
    talk = open_talk(is_flat=True)
    assert "input_audio_format" in talk.said[0]["session"]
    (updated,) = talk.say({"type": "session.update", "session": {"turn_detection": None}})
    assert updated["type"] == "session.updated" and updated["session"]["turn_detection"] is None
    assert "audio" in talk.say(update())[0]["session"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param(
            {"type": "audio/pcm", "rate": 24000},
            AudioFormat("pcm_s16le", 24000),
            marks=supported(DIALECT, "format: audio/pcm"),
        ),
        pytest.param({"type": "audio/pcm"}, AudioFormat("pcm_s16le", 24000)),
        pytest.param(
            {"type": "audio/pcm", "rate": 48000},
            AudioFormat("pcm_s16le", 48000),
            marks=supported(DIALECT, "format: audio/pcm at 8 to 48 kHz (ours)"),
        ),
        pytest.param(
            {"type": "audio/pcmu"}, AudioFormat("mulaw", 8000), marks=supported(DIALECT, "format: audio/pcmu")
        ),
        pytest.param({"type": "audio/pcma"}, AudioFormat("alaw", 8000), marks=supported(DIALECT, "format: audio/pcma")),
    ],
)
def test_audio_has_the_format_asked_for(talk: Talk, wanted: dict[str, Any], expected: AudioFormat) -> None:
    (updated,) = talk.say(update(format=wanted))
    assert source_of(updated)["format"] | wanted == source_of(updated)["format"]
    talk.say({"type": "input_audio_buffer.append", "audio": ""})
    start = talk.commands[0]
    assert isinstance(start, commands.Start) and start.audio == expected


@supported(DIALECT, "transcription.language")
@supported(DIALECT, "transcription.prompt")
def test_hints_reach_the_model(talk: Talk) -> None:
    hints = {"language": "de-CH", "prompt": "One.", "keywords": [" Kowalski"]}
    (updated,) = talk.say(update(transcription=hints))
    assert "warnings" not in updated
    hear(talk, TURN)
    options = talk.windows[-1].options
    assert (options.language, options.previous_text, options.hotwords) == ("de", "One.", ("Kowalski",))
    (done,) = talk.of("conversation.item.input_audio_transcription.completed")
    assert done["languages"] == [{"code": "de"}]


@approximated(DIALECT, "transcription.keywords", how="the first 64 of at most 47 bytes; a warning says how many")
def test_hints_beyond_the_limit_fail_no_session(talk: Talk) -> None:
    """LiveKit sends all key terms that it has detected in a call, and gives up after an error."""
    (updated,) = talk.say(update(transcription={"keywords": ["x" * 48, *(f"word{at}" for at in range(65))]}))
    assert source_of(updated)["transcription"]["keywords"] == [f"word{at}" for at in range(64)]
    (warning,) = updated["warnings"]
    assert warning["param"] == "session.audio.input.transcription.keywords"
    assert warning["message"].endswith("64 of 66 are used")


@supported(DIALECT, "transcription.languages")
def test_the_language_is_one_of_those_that_are_expected(talk: Talk) -> None:
    (updated,) = talk.say(update(transcription={"languages": ["de"]}))
    assert source_of(updated)["transcription"]["language"] == "de"
    (updated,) = talk.say(update(transcription={"languages": ["de-CH", "en"]}))
    assert source_of(updated)["transcription"]["language"] is None
    assert source_of(updated)["transcription"]["languages"] == ["de", "en"]
    assert warned(updated) == []
    hear(talk, TURN)
    assert talk.windows[-1].options.languages == ("de", "en")
    (updated,) = talk.say(update(transcription={"languages": ["de", "en"], "language": "en"}))
    assert source_of(updated)["transcription"]["language"] == "en"
    assert "languages" not in source_of(updated)["transcription"]
    assert warned(updated) == ["session.audio.input.transcription.languages"]


def updated_in_turn(*transcriptions: dict[str, Any], languages: tuple[str, ...]) -> RealtimeSettings:
    """The settings after these updates, on a server whose second model, `small`, knows these languages."""
    cards = {"small": replace(MODEL, name="small", languages=languages)}
    settings = RealtimeSettings()
    for transcription in transcriptions:
        session = {"audio": {"input": {"transcription": transcription}}}
        settings, _ = realtime_options.updated(settings, session, lambda name: cards.get(name or "", MODEL))
    return settings


@pytest.mark.parametrize("kept", [{"language": "de"}, {"languages": ["de", "en"]}])
@pytest.mark.parametrize("languages", [(), ("en", "fr")])
def test_a_model_that_does_not_know_the_language_is_refused(kept: dict[str, Any], languages: tuple[str, ...]) -> None:
    """Also where an earlier update has named the language; otherwise the session would fail at its first audio."""
    (key,) = kept
    with pytest.raises(BadField, match=f"expected one of .* as session.audio.input.transcription.{key}, got 'de'"):
        updated_in_turn(kept, {"model": "small"}, languages=languages)


def test_another_model_keeps_the_language_that_it_knows() -> None:
    for kept, model, languages, expected in (
        ({"language": "de"}, {"model": "small"}, ("en", "de"), ("de", ())),
        ({"languages": ["de", "en"]}, {"model": "small"}, ("en", "de"), (None, ("de", "en"))),
        ({"language": "en"}, {"model": "small"}, ("en",), ("en", ())),
        ({"language": "de"}, {"model": "small", "language": "en"}, ("en",), ("en", ())),
        ({"language": "de"}, {"model": "small", "languages": ["fr"]}, ("fr",), ("fr", ())),
    ):
        settings = updated_in_turn(kept, model, languages=languages)
        assert (settings.language, settings.languages) == expected


@pytest.mark.parametrize("name", ["gpt-realtime-whisper", "gpt-live-transcribe-2026"])
def test_clients_of_models_without_turn_detection_end_turns_themselves(name: str) -> None:
    """They do not say so, since these models know nothing else."""
    talk = open_talk(requested_model=name)
    assert source_of(talk.said[0])["turn_detection"] is None
    talk = open_talk()
    (updated,) = talk.say(update(transcription={"model": name}))
    assert source_of(updated)["turn_detection"] is None
    (updated,) = talk.say(update(turn_detection={"type": "server_vad"}))
    assert source_of(updated)["turn_detection"]["type"] == "server_vad"


@approximated(
    DIALECT,
    "server_vad.silence_duration_ms",
    how="100 to 5000; another value becomes the nearest of these, with a warning",
)
@pytest.mark.parametrize(("wanted", "is_warned"), [(350, False), (20, True), (60_000, True)])
def test_silence_ends_turns_when_asked(talk: Talk, wanted: int, is_warned: bool) -> None:
    (updated,) = talk.say(update(turn_detection={"type": "server_vad", "silence_duration_ms": wanted}))
    silence_ms = source_of(updated)["turn_detection"]["silence_duration_ms"]
    assert silence_ms == min(max(wanted, 100), 5000)
    assert bool(warned(updated)) == is_warned
    talk.say(append(silence(0.1)))
    start = talk.commands[0]
    assert isinstance(start, commands.Start)
    assert (start.endpointing.mode, start.endpointing.silence_ms) == ("vad", silence_ms)
    (updated,) = talk.say(update(turn_detection={"type": "server_vad"}))
    assert source_of(updated)["turn_detection"]["silence_duration_ms"] == silence_ms


@approximated(DIALECT, "server_vad.prefix_padding_ms", how="0 to 1000; a higher value becomes 1000, with a warning")
@pytest.mark.parametrize(("wanted", "padding_ms"), [(600, 600), (0, 0), (5000, 1000)])
def test_padding_before_speech_is_decoded_if_asked_for(talk: Talk, wanted: int, padding_ms: int) -> None:
    (updated,) = talk.say(update(turn_detection={"type": "server_vad", "prefix_padding_ms": wanted}))
    assert source_of(updated)["turn_detection"]["prefix_padding_ms"] == padding_ms
    assert bool(warned(updated)) == (padding_ms != wanted)
    hear(talk, np.concatenate((silence(2.0), TURN)))
    assert talk.of("input_audio_buffer.speech_started")[0]["audio_start_ms"] == 2000 - padding_ms
    assert completed(talk) == [said([1, 2, 3, 4])]


@approximated(DIALECT, "server_vad.threshold", how="has four steps with the detector `webrtc`")
def test_the_threshold_of_the_detector_is_the_clients(talk: Talk) -> None:
    """It stays until the client names another one."""
    for wanted, expected in (({"threshold": 0.7}, 0.7), ({"silence_duration_ms": 300}, 0.7), ({"threshold": 0}, 0.0)):
        (updated,) = talk.say(update(turn_detection={"type": "server_vad", **wanted}))
        assert source_of(updated)["turn_detection"]["threshold"] == expected
        assert not warned(updated)
    hear(talk, TURN)
    assert isinstance(talk.commands[0], commands.Start)
    assert talk.commands[0].endpointing.threshold == 0.0


@supported(DIALECT, "turn_detection: semantic_vad")
@pytest.mark.parametrize(
    ("eagerness", "max_silence_ms"), [(None, 4000), ("auto", 4000), ("low", 8000), ("medium", 4000), ("high", 2000)]
)
def test_semantic_turns_depend_on_what_was_spoken(talk: Talk, eagerness: str | None, max_silence_ms: int) -> None:
    """Up to the longest silence that OpenAI documents for each eagerness."""
    (updated,) = talk.say(update(turn_detection={"type": "semantic_vad", "eagerness": eagerness}))
    assert source_of(updated)["turn_detection"] == {"type": "semantic_vad", "eagerness": eagerness or "auto"}
    assert warned(updated) == []
    hear(talk, TURN)
    start = talk.commands[0]
    assert isinstance(start, commands.Start)
    assert (start.endpointing.mode, start.endpointing.max_silence_ms) == ("adaptive", max_silence_ms)


def test_the_kind_of_turns_can_change(talk: Talk) -> None:
    """The options of the one do not become those of the other."""
    server_vad = {"type": "server_vad", "prefix_padding_ms": 300, "silence_duration_ms": 500}
    for wanted, expected in (
        ({"type": "semantic_vad", "eagerness": "low"}, {"type": "semantic_vad", "eagerness": "low"}),
        ({"type": "server_vad"}, server_vad),
        ({"type": "semantic_vad"}, {"type": "semantic_vad", "eagerness": "auto"}),
        (None, None),
    ):
        (updated,) = talk.say(update(turn_detection=wanted))
        assert source_of(updated)["turn_detection"] == expected


def without_effect(option: str, how: str, **wanted: Any) -> Any:
    return pytest.param(wanted, marks=refused(DIALECT, option, how=how), id=option)


@pytest.mark.parametrize(
    "wanted",
    [
        without_effect("noise_reduction", "named in `warnings`", noise_reduction={"type": "near_field"}),
        without_effect("transcription.delay", "named in `warnings`", transcription={"delay": "low"}),
        without_effect(
            "server_vad.idle_timeout_ms",
            "named in `warnings`",
            turn_detection={"type": "server_vad", "idle_timeout_ms": 5000},
        ),
        without_effect(
            "turn_detection.create_response, interrupt_response",
            "named in `warnings`",
            turn_detection={"type": "server_vad", "create_response": True},
        ),
        without_effect("transcription: null", "named in `warnings`: the server does nothing else", transcription=None),
        pytest.param({"include": ["item.else"]}, id="include"),
        pytest.param({"surprise": 1}, id="unknown"),
    ],
)
def test_what_has_no_effect_is_named(talk: Talk, wanted: dict[str, Any]) -> None:
    """In an extra field of the answer, not in an error: many clients would give up."""
    before = source_of(talk.said[0])
    (updated,) = talk.say(update(**wanted))
    assert updated["type"] == "session.updated"
    assert len(warned(updated)) == 1 and updated["warnings"][0]["message"]
    assert source_of(updated) | {"format": None} == before | {"format": None}


def test_defaults_are_no_cause_for_warnings(talk: Talk) -> None:
    """As LiveKit and Pipecat say them."""
    detection = {
        "type": "server_vad",
        "threshold": 0.5,
        "prefix_padding_ms": 600,
        "silence_duration_ms": 350,
        "create_response": False,
        "interrupt_response": None,
    }
    (updated,) = talk.say(update(turn_detection=detection, noise_reduction=None, transcription={"language": "en"}))
    assert "warnings" not in updated


@supported(DIALECT, "error, with the event_id of what was wrong")
@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ("hello", "bad_json", None),
        ("[]", "bad_json", None),
        (b"\xff\x00", "bad_json", None),
        ('{"type": "\\ud800"}', "bad_json", None),
        ({"type": "surprise"}, "unknown_event", None),
        ({"type": "response.cancel"}, "unsupported_event", None),
        ({"type": "conversation.item.create"}, "unsupported_event", None),
        ({"type": "output_audio_buffer.clear"}, "unsupported_event", None),
        ({}, "unknown_event", None),
        ({"type": [1]}, "unknown_event", None),
        ({"type": "input_audio_buffer.append"}, "invalid_value", "audio"),
        ({"type": "input_audio_buffer.append", "audio": "%%%"}, "invalid_value", "audio"),
        ({"type": "input_audio_buffer.append", "audio": "é"}, "invalid_value", "audio"),
        ({"type": "session.update"}, "invalid_value", "session"),
        ({"type": "session.update", "session": {"type": "song"}}, "invalid_value", "session.type"),
        ({"type": "session.update", "session": {"audio": 3}}, "invalid_value", "session.audio"),
        (update(format={"type": "audio/mp3"}), "invalid_value", "session.audio.input.format.type"),
        (update(format={"rate": 24000}), "invalid_value", "session.audio.input.format.type"),
        (update(format=PCM_16K | {"rate": 96000}), "invalid_value", "session.audio.input.format.rate"),
        (update(format={"type": "audio/pcmu", "rate": 16000}), "invalid_value", "session.audio.input.format.rate"),
        (update(turn_detection={"type": "psychic"}), "invalid_value", "session.audio.input.turn_detection.type"),
        (
            update(turn_detection={"type": "semantic_vad", "eagerness": ["low"]}),
            "invalid_value",
            "session.audio.input.turn_detection.eagerness",
        ),
        (
            update(turn_detection={"type": "server_vad", "silence_duration_ms": "long"}),
            "invalid_value",
            "session.audio.input.turn_detection.silence_duration_ms",
        ),
        (
            update(transcription={"language": "xx"}),
            "invalid_value",
            "session.audio.input.transcription.language",
        ),
        (update(transcription={"keywords": "Kowalski"}), "invalid_value", "session.audio.input.transcription.keywords"),
        (update(transcription={"prompt": "x" * 10_001}), "invalid_value", "session.audio.input.transcription.prompt"),
        (update(include="logprobs"), "invalid_value", "session.include"),
        (
            {"type": "transcription_session.update", "session": {"input_audio_format": "mp3"}},
            "invalid_value",
            "session.input_audio_format",
        ),
        (COMMIT | {"event_id": 5}, "invalid_value", "event_id"),
    ],
)
def test_bad_messages_are_errors_that_change_nothing(talk: Talk, message: Any, code: str, param: str | None) -> None:
    """A bad update changes nothing, and the session continues."""
    talk.say(update())
    if isinstance(message, dict) and "event_id" not in message:
        message = message | {"event_id": "e1"}
    (error,) = talk.say(message)
    assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error"
    assert (error["error"]["code"], error["error"]["param"]) == (code, param)
    assert error["error"]["event_id"] == ("e1" if isinstance(message, dict) and param != "event_id" else None)
    assert "expected" in error["error"]["message"] and len(error["error"]["message"]) < 400
    hear(talk, TURN)
    assert completed(talk) == [said([1, 2, 3, 4])]


# Changes while audio comes.


def test_the_same_settings_once_more_change_nothing(talk: Talk) -> None:
    """LiveKit repeats its settings whenever it uses a socket again, also in the middle of a turn."""
    talk.say(update())
    hear(talk, TURN[:8000])
    talk.say(update())
    assert not any(isinstance(command, commands.Configure) for command in talk.commands)


@given(
    words=st.lists(st.lists(st.integers(0, 40), max_size=12), min_size=1, max_size=6),
    is_manual=st.booleans(),
    events_between=st.lists(st.sampled_from(["", "", "commit", "clear", "update"]), min_size=6, max_size=6),
    late=st.booleans(),
)
def test_whatever_the_client_does_deltas_add_up(
    words: list[list[int]], is_manual: bool, events_between: list[str], late: bool
) -> None:
    """Committed items form a chain, and each is completed once, with the text of its deltas and of its segments."""
    talk = open_talk(answers=not late)
    talk.say(update(turn_detection=None if is_manual else {"type": "server_vad"}))
    for numbers, between in zip(words, events_between, strict=False):
        hear(talk, np.concatenate((speech(numbers), silence(0.3 * len(numbers)))))
        match between:
            case "commit":
                talk.say(COMMIT)
            case "clear":
                talk.say(CLEAR)
            case "update":
                talk.say(update(transcription={"prompt": "Another."}))
    talk.say(append(silence(0.2)))
    talk.say(COMMIT)
    talk.answer_all()
    check_stream(talk)
    committed = [message["item_id"] for message in talk.of("input_audio_buffer.committed")]
    done = talk.of("conversation.item.input_audio_transcription.completed")
    assert sorted(committed) == sorted(message["item_id"] for message in done)
    assert not talk.closes


KEYS = [
    *("type", "audio", "input", "format", "rate", "transcription", "model", "language", "languages", "prompt", "delay"),
    *("keywords", "turn_detection", "silence_duration_ms", "threshold", "eagerness", "noise_reduction", "include"),
    *("input_audio_format", "input_audio_transcription", "input_audio_noise_reduction", "modalities", "surprise"),
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["audio/pcm", "audio/pcmu", "server_vad", "semantic_vad", "transcription", "en", "pcm16", "low"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)


@given(
    kind=st.sampled_from(["session.update", "transcription_session.update", "input_audio_buffer.append"]),
    fields=st.dictionaries(st.sampled_from(["session", "audio", "event_id"]), VALUES),
    source=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
    is_nested=st.booleans(),
)
def test_every_update_is_answered_or_refused(
    kind: str, fields: dict[str, Any], source: dict[str, Any], is_nested: bool
) -> None:
    """Each update gets exactly one answer, and the session continues."""
    talk = open_talk()
    if is_nested:
        fields = fields | {"session": {"audio": {"input": source}}}
    told = talk.say({"type": kind} | fields)
    if kind.endswith("update"):
        (answer,) = told
        assert answer["type"] in (f"{kind}d", "error")
    talk.say({"type": "session.update", "session": {"include": []}})
    assert talk.said[-1]["type"] == "session.updated" and not talk.closes
