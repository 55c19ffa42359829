"""OpenAI's form fields as options, and transcripts as its answers; no server, no engine."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.app.dialects.made_events import SOURCE, segment, utterance
from tests.compat.conformance import supported
from tutti_server.app.dialects.openai.files_wire import FileOptions, TextStream, parse_options, response_body
from tutti_server.app.errors import RequestError
from tutti_server.app.files.subtitles import CueLayout
from tutti_server.app.files.transcript import Transcript
from tutti_server.app.files.transcription_options import FILE_ENDPOINTING, TranscriptionOptions
from tutti_server.app.session.messages import events
from tutti_server.engine import api

SILENCE = "chunking_strategy[silence_duration_ms]"


def options(*fields: tuple[str, str], task: api.Task = "transcribe") -> FileOptions:
    return parse_options(fields, task)


def spoken(utterance: int, number: int, text: str, language: str | None = "en", start_s: float = 0.0) -> events.Segment:
    """Two tokens for a segment, and every word as likely as not."""
    words = tuple(api.Word(f" {word}", 0.0, 1.0, 0.5) for word in text.split())
    source = replace(SOURCE, text=f" {text}", tokens=(1, 2), words=words)
    return segment(text, start_s, start_s + 1.0, utterance=utterance, id=number, language=language, source=source)


def ended(number: int, text: str) -> events.Utterance:
    return utterance(text, 0.0, 1.0, utterance=number)


TALK: list[events.Event] = [
    spoken(0, 0, "Good morning."),
    spoken(0, 1, " How are you?", start_s=1.0),
    ended(0, "Good morning. How are you?"),
    ended(1, ""),
    spoken(2, 2, "Fine.", start_s=4.0),
    ended(2, "Fine."),
    events.Stopped(6.2, 3.0, 6),
]


def told(asked: FileOptions, talk: list[events.Event] = TALK) -> list[dict[str, Any]]:
    stream = TextStream(asked)
    return [message for event in talk for message in stream.push(event)]


def answer(asked: FileOptions, talk: list[events.Event] = TALK) -> tuple[str, str]:
    transcript = Transcript()
    for event in talk:
        transcript.add(event)
    return response_body(transcript, asked)


# What is asked.


@supported("openai-rest", "prompt")
def test_everything_that_has_an_effect() -> None:
    """None of it is named as ignored."""
    asked = options(
        ("response_format", "verbose_json"),
        ("language", "en"),
        ("prompt", "At the station."),
        ("keywords[]", "Kowalski"),
        ("keywords[]", " New Orleans "),
        ("hotwords", "Okonkwo, ,platform"),
        ("temperature", "0.3"),
        ("best_of", "2"),
        ("beam_size", "1"),
        ("condition_on_previous_text", "true"),
        ("timestamp_granularities[]", "word"),
        ("chunking_strategy[type]", "server_vad"),
        (SILENCE, "300"),
    )
    assert asked == FileOptions(
        response_format="verbose_json",
        has_segments=False,
        has_words=True,
        decoding=TranscriptionOptions(
            language="en",
            prompt="At the station.",
            hotwords=("Kowalski", "New Orleans", "Okonkwo", "platform"),
            temperature=0.3,
            best_of=2,
            beam_size=1,
            carries_context=True,
            endpointing=replace(FILE_ENDPOINTING, silence_ms=300),
        ),
    )


@pytest.mark.parametrize(
    ("fields", "found", "ignored"),
    [
        ([("language", "German")], ("de", (), False), ()),
        ([("language", "DE ")], ("de", (), False), ()),
        ([("language", "de_AT")], ("de", (), False), ()),
        ([("language", "auto")], (None, (), False), ()),
        ([("language", "")], (None, (), False), ()),
        ([("language", "en"), ("languages[]", "de")], ("en", (), False), ("languages",)),
        ([("languages[]", "de")], (None, ("de",), False), ()),
        ([("languages", "German"), ("languages", "en-US")], (None, ("de", "en"), False), ()),
        ([("languages", "de"), ("languages", "xx")], (None, ("de",), False), ("languages",)),
        ([("languages", "de"), ("languages", "en"), ("language", "lock")], (None, ("de", "en"), True), ()),
    ],
)
def test_a_language_is_named_or_detected_among_candidates(
    fields: list[tuple[str, str]], found: tuple[str | None, tuple[str, ...], bool], ignored: tuple[str, ...]
) -> None:
    """By codes or English names that the model knows. `language=lock` is our own: the language is detected once."""
    asked = options(*fields)
    assert (asked.decoding.language, asked.decoding.languages, asked.decoding.locks_language) == found
    assert asked.ignored == ignored


@pytest.mark.parametrize(
    ("fields", "chunking", "ignored"),
    [
        ([("chunking_strategy", "auto")], {}, ()),
        ([("chunking_strategy", "")], {}, ()),
        ([("chunking_strategy[type]", "server_vad")], {}, ()),
        ([("chunking_strategy", '{"type": "server_vad", "silence_duration_ms": 300}')], {"silence_ms": 300}, ()),
        (
            [("chunking_strategy[type]", "server_vad"), ("chunking_strategy[threshold]", "0.4"), (SILENCE, "200")],
            {"silence_ms": 200, "threshold": 0.4},
            (),
        ),
        ([("chunking_strategy", '{"type": "server_vad", "prefix_padding_ms": 0}')], {"padding_ms": 0}, ()),
        (
            [("chunking_strategy[type]", "server_vad"), ("chunking_strategy[else]", "1")],
            {},
            ("chunking_strategy[else]",),
        ),
    ],
)
def test_the_chunking_strategy_is_about_endpointing(
    fields: list[tuple[str, str]], chunking: dict[str, Any], ignored: tuple[str, ...]
) -> None:
    asked = options(*fields)
    assert (asked.decoding.endpointing, asked.ignored) == (replace(FILE_ENDPOINTING, **chunking), ignored)


@pytest.mark.parametrize("response_format", ["srt", "vtt"])
def test_a_stream_has_no_subtitles(response_format: str) -> None:
    """Their text is streamed as of the other formats, and the option is named."""
    asked = options(("stream", "true"), ("response_format", response_format))
    assert (asked.is_streamed, asked.response_format, asked.ignored) == (True, "json", ("response_format",))
    assert not asked.needs_words


def test_a_stream_may_have_segments_and_words() -> None:
    """With `verbose_json`."""
    asked = options(("stream", "1"), ("response_format", "verbose_json"), ("timestamp_granularities", "word"))
    assert (asked.response_format, asked.needs_words, asked.ignored) == ("verbose_json", True, ())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ([("response_format", "sub")], "response_format"),
        ([("response_format", "diarized_json")], "response_format"),
        ([("response_format", "json"), ("response_format", "text")], "response_format"),
        ([("stream", "maybe")], "stream"),
        ([("timestamp_granularities[]", "word")], "timestamp_granularities"),
        ([("response_format", "verbose_json"), ("timestamp_granularities[]", "letter")], "timestamp_granularities"),
        ([("include[]", "everything")], "include"),
        ([("include[]", "logprobs"), ("response_format", "text")], "include"),
        ([("known_speaker_names[]", "agent"), ("known_speaker_names[]", "customer")], "known_speaker_names"),
        ([("known_speaker_references[]", "data:,")], "known_speaker_references"),
        ([("chunking_strategy", "none")], "chunking_strategy"),
        ([("chunking_strategy", "{")], "chunking_strategy"),
        ([("chunking_strategy[type]", "client")], "chunking_strategy[type]"),
        ([(SILENCE, "300")], "chunking_strategy[type]"),
        ([("chunking_strategy", '{"type": "server_vad", "silence_duration_ms": 9}')], SILENCE),
        ([("chunking_strategy", '{"type": "server_vad", "threshold": 1.5}')], "chunking_strategy[threshold]"),
        ([("language", "en"), ("language", "de")], "language"),
        ([("languages", "xx")], "languages"),
        ([("prompt", "a" * 10_001)], "prompt"),
        ([("temperature", "1.2")], "temperature"),
        ([("temperature", "warm")], "temperature"),
        ([("temperature", "nan")], "temperature"),
        ([("best_of", "2.5")], "best_of"),
        ([("best_of", "0")], "best_of"),
        ([("beam_size", "0")], "beam_size"),
        ([("beam_size", "11")], "beam_size"),
        ([("beam_size", "many")], "beam_size"),
        ([("beam_size", "5"), ("temperature", "0.3")], "beam_size"),
        ([("condition_on_previous_text", "perhaps")], "condition_on_previous_text"),
        ([("hotwords", "a" * 48)], "hotwords"),
        ([("hotwords", ",".join("a" * 65))], "hotwords"),
        ([("text_rules[redact][]", "card")], "text_rules"),
        ([("text_rules[replace][Cuba nets]", "Kubernetes"), ("text_rules", '{"redact": ["card"]}')], "text_rules"),
        ([("tracks", "both")], "tracks"),
        ([("tracks", "all"), ("track", "1")], "tracks"),
        ([("tracks", "all"), ("stream", "true")], "tracks"),
        ([("tracks", "all"), ("response_format", "srt")], "tracks"),
        ([("max_line_width", "30")], "max_line_width"),
        ([("response_format", "srt"), ("max_line_width", "5")], "max_line_width"),
        ([("response_format", "vtt"), ("max_line_count", "0")], "max_line_count"),
    ],
)
def test_wrong_values_are_refused(fields: list[tuple[str, str]], param: str) -> None:
    """With the name of the field, what was expected and what came."""
    with pytest.raises(RequestError) as raised:
        options(*fields)
    assert (raised.value.status, raised.value.param) == (400, param)
    assert param.partition("[")[0] in raised.value.message


def test_hints_beyond_the_limit_fail_no_request() -> None:
    """LiveKit sends all key terms that it has detected in a call with each request."""
    keywords = ["a" * 48, *(f"word{at}" for at in range(65))]
    asked = options(*(("keywords[]", each) for each in keywords))
    assert asked.decoding.hotwords == tuple(keywords[1:65])
    assert asked.ignored == ("keywords",)


FIELDS = (
    "model prompt response_format stream timestamp_granularities[] timestamp_granularities[0] include[] language "
    "languages[] temperature temperature_fallback best_of beam_size condition_on_previous_text hotwords keywords[] "
    "text_rules chunking_strategy chunking_strategy[type] chunking_strategy[threshold] known_speaker_names[] "
    "known_speaker_references[] channel_names[] max_speakers"
).split()


@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_field_is_not_given(value: str) -> None:
    """Alone, and all of them at once: forms of browsers and of many clients send every field."""
    for fields in [[(name, value)] for name in FIELDS] + [[(name, value) for name in FIELDS]]:
        assert options(*fields) == options()


def test_fields_may_be_spelled_as_clients_spell_them() -> None:
    """Lists with an index, numbers with a point, booleans in words."""
    asked = options(
        ("response_format", "verbose_json"),
        ("timestamp_granularities[0]", "word"),
        ("timestamp_granularities[1]", "segment"),
        ("keywords[0]", "Anna"),
        ("keywords[1]", "Berta"),
        ("best_of", "3.0"),
        ("temperature", "1e-1"),
        ("stream", "Off"),
        ("condition_on_previous_text", "yes"),
        ("temperature_fallback", "NO"),
    )
    assert (asked.has_words, asked.has_segments, asked.is_streamed, asked.ignored) == (True, True, False, ())
    assert asked.decoding == TranscriptionOptions(
        hotwords=("Anna", "Berta"), best_of=3, temperature=0.1, carries_context=True, falls_back=False
    )


# What is answered.


@pytest.mark.parametrize("granularities", [("word",), ("segment",), ("word", "segment"), ()])
def test_words_and_segments_are_there_where_asked_for(granularities: tuple[str, ...]) -> None:
    fields = [("timestamp_granularities[]", each) for each in granularities]
    body = json.loads(answer(options(("response_format", "verbose_json"), *fields))[0])
    assert ("segments" in body, "words" in body) == (granularities != ("word",), "word" in granularities)


@supported("openai-rest", "response_format=text")
@supported("openai-rest", "response_format=vtt")
def test_text_and_subtitles() -> None:
    assert answer(FileOptions(response_format="text")) == ("Good morning. How are you? Fine.\n", "text/plain")
    srt, media_type = answer(FileOptions(response_format="srt"))
    assert media_type == "text/plain"
    assert srt.split("\n\n")[1] == "2\n00:00:01,000 --> 00:00:02,000\nHow are you?"
    vtt, media_type = answer(FileOptions(response_format="vtt"))
    assert media_type == "text/vtt" and vtt.startswith("WEBVTT\n\n00:00:00.000 --> ")


def test_a_verbose_stream_has_the_segments_of_the_verbose_answer() -> None:
    """Each follows its delta; speech without text is a segment without text, in its place."""
    first = replace(spoken(0, 0, "Good morning."), words=(events.Word("Good", 0.0, 0.5, 0.9),))
    unread = replace(ended(0, "Good morning."), uncovered=((2.0, 3.5),))
    talk: list[events.Event] = [first, unread, spoken(1, 1, "Fine.", start_s=4.0), events.Stopped(6.2, 2.0, 3)]
    asked = FileOptions(is_streamed=True, response_format="verbose_json", has_words=True)
    sent = told(asked, talk)
    assert [each["type"].rsplit(".")[-1] for each in sent] == [
        "delta",
        "segment",
        "segment",
        "delta",
        "segment",
        "done",
    ]
    listed = json.loads(answer(asked, talk)[0])["segments"]
    for of_stream, of_answer in zip((sent[1], sent[4]), listed, strict=True):
        assert of_answer.items() <= of_stream.items()
    assert sent[1]["words"] == [{"word": "Good", "start": 0.0, "end": 0.5, "confidence": 0.9}]
    assert [sent[1][name] for name in ("utterance", "language")] == [0, "en"]
    assert sent[2] == {"type": "transcript.text.segment", "start": 2.0, "end": 3.5, "text": "", "utterance": 0}
    assert [sent[5][name] for name in ("duration", "speech_duration", "words")] == [6.2, 2.0, 3]


def test_utterances_of_scripts_without_spaces_are_joined_without() -> None:
    """Others have their spaces, in another language after the first one and in translations of it."""
    texts = ["おはよう。", "元気？", "Fine.", "And you?"]
    talk: list[events.Event] = [events.Stopped(2.0, 2.0, 2)]
    for number, text in reversed(list(enumerate(texts))):
        talk = [spoken(number, number, text, "ja"), ended(number, text), *talk]
    expected = "おはよう。元気？Fine. And you?"
    assert told(FileOptions(), talk)[-1]["text"] == json.loads(answer(FileOptions(), talk)[0])["text"] == expected


def test_each_segment_has_its_language() -> None:
    """The file has that of its first one."""
    transcript = Transcript()
    for event in (spoken(0, 0, "Good morning."), spoken(1, 1, "Guten Morgen.", "de"), spoken(2, 2, "Hm.", None)):
        transcript.add(event)
    body = json.loads(response_body(transcript, options(("response_format", "verbose_json")))[0])
    assert [each["language"] for each in body["segments"]] == ["en", "de", None]
    assert body["language"] == "english"


def test_a_language_that_was_asked_for_is_told_without_text() -> None:
    body = json.loads(
        response_body(Transcript(), options(("response_format", "verbose_json"), ("language", "de-AT")))[0]
    )
    assert body["language"] == "german"


def test_people_choose_the_size_of_subtitles() -> None:
    asked = options(
        ("response_format", "srt"), ("max_line_width", "30"), ("max_line_count", "1"), ("max_words_per_line", "")
    )
    assert asked.cue_layout == CueLayout(max_line_width=30, max_line_count=1)
