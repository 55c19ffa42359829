"""WhisperLive's messages, by the rules that its client applies to them."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.app.dialects.made_events import interim, segment, utterance
from tests.compat.conformance import approximated, refused, supported
from tutti_server.app.dialects.whisperlive.options import MAX_SEGMENTS, parse
from tutti_server.app.dialects.whisperlive.wire import WhisperLive
from tutti_server.app.errors import BadMessage, BadStart, SessionError
from tutti_server.app.media.pcm import AudioFormat, decode_samples
from tutti_server.app.session.messages import commands, events

# What the package's client says when it is told nothing.
DEFAULTS: dict[str, Any] = {
    "uid": "u1",
    "language": None,
    "task": "transcribe",
    "model": "small",
    "use_vad": True,
    "send_last_n_segments": 10,
    "no_speech_thresh": 0.45,
    "clip_audio": False,
    "same_output_threshold": 10,
    "enable_translation": False,
    "target_language": "fr",
    "hotwords": None,
    "enable_diarization": False,
    "max_speakers": 10,
    "known_speakers": [],
    "word_timestamps": False,
    "initial_prompt": None,
    "vad_parameters": None,
}


def start(**options: object) -> tuple[WhisperLive, commands.Start]:
    dialect = WhisperLive()
    (command,) = dialect.read(json.dumps({**DEFAULTS, **options}))
    assert isinstance(command, commands.Start)
    return dialect, command


def answers(dialect: WhisperLive, *said: events.Event) -> list[dict[str, Any]]:
    return [json.loads(text) for event in said for text in dialect.write(event)]


UTTERANCE = utterance("", 0.0, 1.0)
STARTED = events.Started("s_0", "small", events.Limits())


def test_defaults_cause_no_warning() -> None:
    _, command = start()
    endpointing = commands.Endpointing(mode=None)
    assert command == commands.Start(audio=AudioFormat("pcm_f32le"), locks_language=True, endpointing=endpointing)


@supported("whisperlive", "uid")
@supported("whisperlive", "language")
@supported("whisperlive", "initial_prompt")
@approximated("whisperlive", "task", how="`translate` is refused if the model cannot translate")
def test_options_become_those_of_a_session() -> None:
    _, command = start(language="de", task="translate", initial_prompt="A call.", word_timestamps=True)
    assert (command.language, command.task, command.prompt, command.words) == ("de", "translate", "A call.", True)


@supported("whisperlive", "audio_format")
@pytest.mark.parametrize(
    ("audio_format", "data"),
    [
        ("float32", np.array([0.5, -1.0, 0.0], "<f4").tobytes()),
        ("int16", np.array([1 << 14, -(1 << 15), 0], "<i2").tobytes()),
        ("uint8", bytes([192, 0, 128])),
    ],
)
def test_every_format_of_audio_is_decoded(audio_format: str, data: bytes) -> None:
    dialect, command = start(audio_format=audio_format)
    (audio,) = dialect.read(data)
    assert isinstance(audio, commands.Audio)
    assert decode_samples(audio.data, command.audio.encoding).tolist() == [0.5, -1.0, 0.0]


@approximated(
    "whisperlive",
    "hotwords",
    how="a text is split at commas; at most 64 hotwords of at most 47 bytes, and a warning says if some are dropped",
)
def test_hotwords_are_text_or_a_list() -> None:
    assert start(hotwords="Kowalski, tutti,")[1].hotwords == ("Kowalski", "tutti")
    assert start(hotwords=["New York"])[1].hotwords == ("New York",)
    phrase = "a phrase that says what the speech may be about, without commas"
    assert start(hotwords=phrase.replace(",", ""))[1].hotwords == tuple(phrase.replace(",", "").split())
    _, command = start(hotwords=[f"word{number}" for number in range(70)])
    assert len(command.hotwords) == 64
    assert "6 left out" in command.notices[0].message


@approximated(
    "whisperlive",
    "vad_parameters",
    how="`min_silence_duration_ms`, from 100 to 5000, ends an utterance; `threshold`; a warning names the others",
)
def test_silence_ends_an_utterance_as_asked() -> None:
    assert start()[1].endpointing.mode is None
    for others in ({}, {"threshold": 0.3}):
        chosen = commands.Endpointing(mode=None, threshold=others.get("threshold"))
        assert start(vad_parameters=others)[1].endpointing == chosen
    _, command = start(vad_parameters={"min_silence_duration_ms": 800})
    assert command.endpointing.mode == "vad"
    assert (command.endpointing.silence_ms, command.notices) == (800, ())
    _, command = start(vad_parameters={"min_silence_duration_ms": 20, "threshold": 0.3, "speech_pad_ms": 9})
    assert (command.endpointing.silence_ms, command.endpointing.threshold) == (100, 0.3)
    assert [notice.message for notice in command.notices] == [
        "vad_parameters.speech_pad_ms: has no effect; the server decides",
        "vad_parameters.min_silence_duration_ms: 20 is taken as 100",
    ]


@refused("whisperlive", "use_vad: false", how="a warning")
@refused("whisperlive", "no_speech_thresh", how="a warning if it is not the default")
@refused("whisperlive", "clip_audio", how="a warning")
@refused("whisperlive", "same_output_threshold", how="a warning if it is not the default")
@refused("whisperlive", "enable_translation, target_language", how="a warning; there are no `translated_segments`")
@refused("whisperlive", "enable_diarization, max_speakers, known_speakers", how="a warning; segments name no speakers")
@refused("whisperlive", "unknown options", how="a warning")
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("use_vad", False),
        ("no_speech_thresh", 0.6),
        ("clip_audio", True),
        ("same_output_threshold", 3),
        ("enable_translation", True),
        ("enable_diarization", True),
        ("known_speakers", [{"name": "Ann", "audio_base64": ""}]),
        ("colour", "red"),
    ],
)
def test_what_has_no_effect_is_named(option: str, value: object) -> None:
    dialect, command = start(**{option: value})
    (notice,) = command.notices
    assert notice.message.startswith(f"{option}: ")
    (_, warning) = answers(dialect, replace(STARTED, notices=command.notices))
    assert (warning["status"], warning["message"]) == ("WARNING", notice.message)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("uid", None),
        ("uid", 7),
        ("language", 7),
        ("task", "summarise"),
        ("audio_format", "opus"),
        ("audio_format", []),
        ("send_last_n_segments", 0),
        ("send_last_n_segments", True),
        ("word_timestamps", "perhaps"),
        ("initial_prompt", "x" * 10_001),
        ("hotwords", [1]),
        ("vad_parameters", "silero"),
        ("vad_parameters", {"min_silence_duration_ms": "long"}),
        ("vad_parameters", {"threshold": 2}),
    ],
)
def test_a_wrong_value_is_named(option: str, value: object) -> None:
    with pytest.raises(BadStart, match=f"^{option}.*: expected .*, got "):
        start(**{option: value})


@pytest.mark.parametrize("text", ["", "hello", "[]", '{"uid": NaN}', '{"uid": "\\ud800"}', "[" * 100_000])
def test_options_that_cannot_be_read_are_explained(text: str) -> None:
    with pytest.raises(SessionError, match="expected"):
        WhisperLive().read(text)


def test_text_after_the_options_is_no_audio() -> None:
    dialect, _ = start()
    with pytest.raises(BadMessage, match="binary"):
        dialect.read("{}")


def test_the_same_interim_is_sent_once() -> None:
    dialect, _ = start()
    assert len(answers(dialect, interim("Hello"), interim("Hello"), interim("Hello there"))) == 2


def test_an_interim_without_a_final_is_cleared() -> None:
    """Only that of the utterance that has ended; never with a list that is empty."""
    dialect, _ = start()
    told = answers(dialect, interim("Hm", utterance=1), UTTERANCE, replace(UTTERANCE, utterance=1), UTTERANCE)
    assert [[each["text"] for each in message["segments"]] for message in told] == [[" Hm"], [""]]


@approximated(
    "whisperlive",
    "language detection",
    how="reported with the first segment, and again if it changes before there is enough evidence to keep it",
)
def test_a_detected_language_is_reported() -> None:
    """With its probability, if the model knows several languages."""
    dialect, started = start()
    assert started.locks_language
    german = replace(segment("Ja.", 0.0, 1.0, language="de"), language_probability=0.75)
    english = replace(segment("That is it.", 1.0, 2.0), language_probability=0.875)
    told = answers(dialect, german, english, replace(english, language_probability=0.75))
    assert [each for each in told if "language" in each] == [
        {"uid": "u1", "language": "de", "language_prob": 0.75},
        {"uid": "u1", "language": "en", "language_prob": 0.875},
    ]


@pytest.mark.parametrize(("text", "written"), [("はい。", "はい。"), ("Yes.", " Yes.")])
def test_text_without_spaces_gets_none(text: str, written: str) -> None:
    """A translation of it does."""
    dialect, _ = start(language="ja")
    (told,) = answers(dialect, segment(text, 0.0, 1.0, language="ja"))
    assert told["segments"][0]["text"] == written


@supported("whisperlive", "ERROR, WARNING and DISCONNECT")
@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (events.Failure("bad_start", "no", is_fatal=True), ["ERROR"]),
        (events.Failure("too_fast", "no", is_fatal=True), ["ERROR"]),
        (events.Failure("incomplete_sample", "no", is_fatal=False), ["WARNING"]),
        (events.Failure("draining", "no", is_fatal=True), ["WARNING", "DISCONNECT"]),
        (events.Failure("engine_stalled", "no", is_fatal=True), ["WARNING", "DISCONNECT"]),
        (events.Failure("no_engine", "no", is_fatal=True), ["WARNING", "DISCONNECT"]),
        (events.Failure("session_limit", "no", is_fatal=True), ["WARNING", "DISCONNECT"]),
    ],
)
def test_only_a_client_that_should_give_up_receives_an_error(failure: events.Failure, told: list[str]) -> None:
    """The package connects again after the others, if it was made to."""
    dialect, _ = start()
    assert [each.get("status") or each["message"] for each in answers(dialect, failure)] == told


times = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 3)), max_size=20)


@given(times, st.integers(1, MAX_SEGMENTS * 2), st.lists(st.booleans(), min_size=20, max_size=20))
@example([(0.9985, 0.0), (0.0, 0.0), (0.0, 0.0)], 2, [False] * 20)  # Rounding hid that the first had a length.
def test_the_client_keeps_every_segment_once(
    gaps: list[tuple[float, float]], n_segments: int, shows: list[bool]
) -> None:
    """It keeps a completed segment that starts where the last kept one ended, or later, each time it receives one."""
    dialect, _ = start(send_last_n_segments=n_segments)
    kept: list[dict[str, Any]] = []
    shown = None
    now_s = 0.0
    for number, (gap_s, duration_s) in enumerate(gaps):
        said: list[events.Event] = [interim(f"Wor{number}", utterance=number)] if shows[number] else []
        said.append(segment(f"Word{number}.", now_s + gap_s, now_s + gap_s + duration_s))
        now_s += gap_s + duration_s
        for message in answers(dialect, *said):
            for each in message.get("segments", ()):
                if not each["completed"]:
                    shown = each
                elif not kept or float(each["start"]) >= float(kept[-1]["end"]):
                    kept.append(each)
    assert [each["text"] for each in kept] == [f" Word{number}." for number in range(len(gaps))]
    if shown is not None and shows[len(gaps) - 1]:
        assert shown["text"] == kept[-1]["text"], "the client's subtitles would end with what was shown last"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*DEFAULTS, "audio_format", "colour"]), JSON))
def test_options_of_any_kind_are_accepted_or_explained(options: dict[str, Any]) -> None:
    """Nothing but a `SessionError` is raised, and its message can be sent."""
    dialect = WhisperLive()
    try:
        (command,) = dialect.read(json.dumps({**DEFAULTS, **options}))
    except SessionError as error:
        answers(dialect, events.Failure(error.code, error.message, is_fatal=error.is_fatal))
    else:
        assert isinstance(command, commands.Start)
        answers(dialect, replace(STARTED, notices=command.notices), interim("Hello"), segment("Hello.", 0.0, 1.0))


def test_an_option_without_effect_may_be_a_text() -> None:
    """Only one that asks for an effect is named."""
    off = {"clip_audio": "false", "enable_translation": "0", "enable_diarization": "no", "use_vad": "true"}
    assert parse(off | {"same_output_threshold": "10", "no_speech_thresh": "0.45", "foo": ""}).start.notices == ()
    named = parse({"use_vad": "False", "clip_audio": "on", "same_output_threshold": "7"}).start.notices
    assert [notice.message.partition(":")[0] for notice in named] == ["use_vad", "clip_audio", "same_output_threshold"]
