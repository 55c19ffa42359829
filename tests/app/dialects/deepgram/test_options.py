"""Deepgram's query parameters: the effect of each, and that the server ignores none silently."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compat.conformance import approximated, refused, supported
from tutti_server.app.dialects.deepgram.options import MIN_ENDPOINTING_MS, Options, parse
from tutti_server.app.errors import BadStart
from tutti_server.app.media.pcm import AudioFormat, Encoding
from tutti_server.app.text_rules.pipeline import TextRuleOptions
from tutti_server.engine.api import MAX_HOTWORD_BYTES, MAX_HOTWORDS

LANGUAGES = ("en", "de", "yue")
LIVE, FILE = "deepgram-live", "deepgram-prerecorded"
KEYTERMS = (
    f"at most {MAX_HOTWORDS} terms of at most {MAX_HOTWORD_BYTES} bytes; "
    "the header `x-tutti-adjusted` says if some are dropped"
)
KEYWORDS = (
    "weights have no effect, and keywords with a negative weight are dropped; named in the header `x-tutti-adjusted`"
)
NAMED = "named in the header `x-tutti-ignored`"
NAMED_TWICE = "named in the header `x-tutti-ignored` and in `metadata.warnings`"

IGNORED = {
    "dictation": "true",
    "detect_entities": "true",
    "tag": "a",
    "version": "latest",
    "language_hint": "es",
}
IGNORED_LIVE = {"filler_words": "true", **IGNORED}
IGNORED_FILE = {
    "filler_words": "true",
    "measurements": "true",
    "sentiment": "true",
    "summarize": "v2",
    "topics": "true",
    "custom_topic": "a",
    "custom_topic_mode": "strict",
    "intents": "true",
    "custom_intent": "a",
    "custom_intent_mode": "strict",
    **IGNORED,
}


def live(*query: tuple[str, str]) -> Options:
    return parse(query, LANGUAGES, is_live=True)


def recorded(*query: tuple[str, str]) -> Options:
    return parse(query, LANGUAGES, is_live=False)


def for_both(mark: Callable[..., pytest.MarkDecorator], option: str, **how: str) -> Callable[[Any], Any]:
    """Mark what a test shows of an option that is the same live and for recordings."""
    return lambda test: mark(LIVE, option, **how)(mark(FILE, option, **how)(test))


@pytest.mark.parametrize(
    ("name", "value"),
    [pytest.param(*each, marks=refused(LIVE, each[0], how=NAMED)) for each in IGNORED_LIVE.items()],
)
def test_what_has_no_effect_live_is_named(name: str, value: str) -> None:
    assert live((name, value)).ignored == (name,)
    assert live((name, "false")).ignored == ()


def test_a_live_stream_names_every_track_as_ignored() -> None:
    """0 is the first track, and "no" is Norwegian: elsewhere both say that something is off."""
    for track in ("0", "no", "eng"):
        assert live(("track", track)).ignored == ("track",)


@pytest.mark.parametrize(
    ("name", "value"),
    [pytest.param(*each, marks=refused(FILE, each[0], how=NAMED_TWICE)) for each in IGNORED_FILE.items()],
)
def test_what_has_no_effect_on_recordings_is_named(name: str, value: str) -> None:
    assert recorded((name, value)).ignored == (name,)


@refused(LIVE, "callback", how="HTTP 400")
def test_what_must_not_be_left_out_of_account_is_refused() -> None:
    with pytest.raises(BadStart, match="callback: expected none"):
        live(("callback", "https://example.com"))


REDACT = (
    "numbers of cards with their codes, social security numbers, accounts, telephones, e-mail addresses, sequences of "
    "digits; labels have no numbers; any other value is refused with 400"
)


@for_both(approximated, "redact", how=REDACT)
@pytest.mark.parametrize("read", [live, recorded])
def test_what_must_not_be_written_down(read: Callable[..., Options]) -> None:
    assert read(("redact", "pci"), ("redact", "ssn, email_address,true")).start.text_rules.redact == (
        "card",
        "ssn",
        "email",
        "number",
    )
    assert read(("redact", "false")).start.text_rules.redact == ()
    for value in ("pii", "phi", "name", "pci,name"):
        with pytest.raises(BadStart, match=r"redact: expected one of pci, .* nothing else is redacted here"):
            read(("redact", value))


ENGLISH = "English only; elsewhere named in the header `x-tutti-ignored`"


@for_both(approximated, "numerals", how=ENGLISH)
@for_both(approximated, "profanity_filter", how=ENGLISH)
@pytest.mark.parametrize("read", [live, recorded])
def test_numerals_and_profanity_in_english(read: Callable[..., Options]) -> None:
    wanted = (("numerals", "true"), ("profanity_filter", "true"))
    assert read(*wanted).start.text_rules == TextRuleOptions(numerals=True, profanity="mask")
    assert read(*wanted).ignored == ()
    for other in (("language", "de"), ("language", "multi"), ("detect_language", "true")):
        options = read(*wanted, other)
        assert (bool(options.start.text_rules), options.ignored) == (False, ("numerals", "profanity_filter"))


SEARCH = "the same words are found, not similar sounds"


@approximated(LIVE, "search", how=f"{SEARCH}; in final results")
@approximated(FILE, "search", how=SEARCH)
@pytest.mark.parametrize("read", [live, recorded])
def test_phrases_that_are_looked_for(read: Callable[..., Options]) -> None:
    assert read(("search", "next train"), ("search", "city")).search == ("next train", "city")
    for wrong in ("?", "x" * 101):
        with pytest.raises(BadStart, match="search: expected at most 200 phrases"):
            read(("search", wrong))


@for_both(supported, "replace")
@pytest.mark.parametrize("read", [live, recorded])
def test_words_that_are_replaced(read: Callable[..., Options]) -> None:
    options = read(("replace", "Cuba nets:Kubernetes: the second"), ("replace", "um"))
    assert options.start.text_rules.replace == (("Cuba nets", "Kubernetes: the second"), ("um", ""))
    for wrong in (":others", "?:!", "x" * 101):
        with pytest.raises(BadStart, match="replace: expected at most 200 of the form WORDS:OTHERS"):
            read(("replace", wrong))
    with pytest.raises(BadStart, match="replace: expected at most 200"):
        read(*[("replace", "a:b")] * 201)


def test_a_recording_may_have_a_callback() -> None:
    options = recorded(("callback", "https://example.com"), ("callback_method", "put"))
    assert (options.callback, options.callback_method, options.ignored) == ("https://example.com", "PUT", ())
    with pytest.raises(BadStart, match="callback_method: expected POST or PUT, got 'GET'"):
        recorded(("callback", "https://example.com"), ("callback_method", "GET"))


@approximated(LIVE, "model", how="with one model any name is accepted; every result names the model that answers")
@approximated(
    FILE, "model", how="with one model any name is accepted; `metadata.model_info` names the model that answers"
)
@for_both(supported, "mip_opt_out")
@supported(LIVE, "no_delay")
def test_what_needs_nothing_done_is_granted() -> None:
    """Nothing is kept, or held back."""
    query = (("model", "nova-3"), ("mip_opt_out", "true"), ("no_delay", "true"))
    assert live(*query) == live()
    assert recorded(*query) == recorded()


@for_both(supported, "encoding=linear16, linear32, mulaw, alaw")
@for_both(supported, "sample_rate")
@pytest.mark.parametrize(
    ("encoding", "ours"),
    [("linear16", "pcm_s16le"), ("linear32", "pcm_f32le"), ("mulaw", "mulaw"), ("alaw", "alaw")],
)
def test_raw_encodings(encoding: str, ours: Encoding) -> None:
    query = (("encoding", encoding), ("sample_rate", "8000"))
    for read in (live, recorded):
        assert read(*query).audio == AudioFormat(ours, 8000, 1, is_mixed=True)


@for_both(supported, "channels")
def test_channels_are_mixed_unless_each_is_to_be_transcribed() -> None:
    query = (("encoding", "linear16"), ("sample_rate", "8000"), ("channels", "2"))
    assert live(*query).audio == AudioFormat("pcm_s16le", 8000, 2, is_mixed=True)
    apart = live(*query, ("multichannel", "true"))
    assert apart.audio == AudioFormat("pcm_s16le", 8000, 2, is_mixed=False)


@for_both(supported, "encoding=flac, opus, ogg-opus, speex (in their containers)")
@pytest.mark.parametrize("encoding", [None, "flac", "opus", "ogg-opus", "speex"])
def test_containers_say_for_themselves_what_they_hold(encoding: str | None) -> None:
    query = [("encoding", encoding)] if encoding else []
    assert live(*query, ("sample_rate", "48000")).audio is None
    assert live(*query, ("sample_rate", "48000")).ignored == ("sample_rate",)
    assert recorded(*query).audio is None


@for_both(refused, "encoding=amr-nb, amr-wb, g729", how="HTTP 400")
@pytest.mark.parametrize("encoding", ["amr-nb", "amr-wb", "g729", "linear24"])
def test_other_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(BadStart, match="encoding: expected one of linear16"):
        live(("encoding", encoding))


@for_both(supported, "language")
@pytest.mark.parametrize(
    ("asked", "code"),
    [(None, "en"), ("en", "en"), ("en-US", "en"), ("de-CH", "de"), ("DE", "de"), ("zh-HK", "yue")],
)
def test_languages_may_have_a_region(asked: str | None, code: str) -> None:
    query = [] if asked is None else [("language", asked)]
    assert live(*query).start.language == code
    assert recorded(*query).start.language == code


MULTI_HOW = (
    "a window of up to 30 s has one language, which one short utterance does not change; not every word has its own"
)


@for_both(approximated, "language=multi", how=MULTI_HOW)
def test_any_of_the_models_languages_may_be_spoken() -> None:
    options = live(("language", "multi"))
    assert (options.start.language, options.is_multilingual, options.start.locks_language) == (None, True, False)
    assert parse([("language", "multi")], ("en",), is_live=True).adjusted == ("language=en",)


@supported(FILE, "detect_language")
@supported(LIVE, "detect_language")
def test_the_language_may_be_detected() -> None:
    """Once, as Deepgram does for recordings. Live, where it is our own parameter, every text has its language."""
    for parsed in (recorded, live):
        options = parsed(("detect_language", "true"))
        assert (options.start.language, options.start.languages, options.start.locks_language) == (None, (), True)
        assert (options.detects_language, options.is_multilingual) == (parsed is recorded, parsed is live)
        off = parsed(("detect_language", "false"))
        assert (off.start.language, off.start.locks_language) == ("en", False)


def test_the_language_may_be_one_of_a_list() -> None:
    """Languages that the model does not know are left out, and this is reported."""
    for parsed in (recorded, live):
        options = parsed(("detect_language", "en"), ("detect_language", "de-CH"))
        assert (options.start.languages, options.start.locks_language, options.adjusted) == (("en", "de"), True, ())
        options = parsed(("detect_language", "de"), ("detect_language", "xx"), ("language", "multi"))
        assert (options.start.languages, options.start.locks_language, options.adjusted) == (
            ("de",),
            False,
            ("detect_language=de",),
        )
        with pytest.raises(BadStart, match="detect_language: expected true, false, or some of"):
            parsed(("detect_language", "xx"))


@pytest.mark.parametrize(
    ("values", "candidates", "adjusted"),
    [
        (["true", "de"], ("de",), ()),
        (["de", "true", "en"], ("de", "en"), ()),
        (["false", "de"], ("de",), ("detect_language=de",)),
        (["true", "xx"], (), ("detect_language=true",)),
        (["true", "false"], (), ("detect_language=true",)),
    ],
)
def test_a_language_beside_a_boolean_counts(
    values: list[str], candidates: tuple[str, ...], adjusted: tuple[str, ...]
) -> None:
    """What contradicts it is reported."""
    for parsed in (recorded, live):
        options = parsed(*(("detect_language", value) for value in values))
        assert (options.start.languages, options.start.locks_language, options.adjusted) == (candidates, True, adjusted)


@approximated(
    LIVE,
    "endpointing",
    how=f"{MIN_ENDPOINTING_MS} to 5000 ms, 500 ms by default; another value becomes the nearest of these, named in the "
    "header `x-tutti-adjusted`. With `false`, results still become final after 500 ms of silence, but `speech_final` "
    "is never true",
)
@pytest.mark.parametrize(
    ("asked", "silence_ms", "tells", "adjusted"),
    [
        (None, 500, True, ()),
        ("true", 500, True, ()),
        ("false", 500, False, ()),
        ("700", 700, True, ()),
        ("25", 300, True, ("endpointing=300",)),
        ("700.0", 700, True, ()),
        ("99999999999999", 5000, True, ("endpointing=5000",)),
        ("0000000000700", 700, True, ()),
    ],
)
def test_endpointing(asked: str | None, silence_ms: int, tells: bool, adjusted: tuple[str, ...]) -> None:
    options = live(*([] if asked is None else [("endpointing", asked)]))
    assert options.start.endpointing.silence_ms == silence_ms
    assert (options.reports_endpoints, options.adjusted) == (tells, adjusted)


@for_both(approximated, "keyterm", how=KEYTERMS)
def test_key_terms_are_hotwords() -> None:
    options = live(("keyterm", "customer service"), ("keyterm", " Kowalski:2 "))
    assert (options.start.hotwords, options.adjusted) == (("customer service", "Kowalski:2"), ())
    many = [("keyterm", f"term {number}") for number in range(100)]
    assert len(recorded(*many).start.hotwords) == MAX_HOTWORDS
    assert recorded(*many).adjusted == (f"keyterm={MAX_HOTWORDS} of 100",)
    assert live(("keyterm", "x" * 1000)).adjusted == ("keyterm=0 of 1",)


@for_both(approximated, "keywords", how=KEYWORDS)
def test_keywords_are_hotwords_without_weights() -> None:
    assert live(("keywords", "Kowalski")).adjusted == ()
    options = live(("keywords", "Kowalski:2.5"), ("keywords", "a:b"))
    assert (options.start.hotwords, options.adjusted) == (("Kowalski", "a:b"), ("keywords=without weights",))
    options = live(("keywords", "Kowalski"), ("keywords", "tutti:-5"))
    assert (options.start.hotwords, options.adjusted) == (("Kowalski",), ("keywords=1 of 2",))


def test_unknown_parameters_are_named_within_bounds() -> None:
    options = live(*((f"{number:03}{'x' * 1000}", "1") for number in range(500)))
    assert len(options.ignored) == 20
    assert max(map(len, options.ignored)) == 40


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ([("encoding", "linear16")], "sample_rate"),
        ([("encoding", "linear16"), ("sample_rate", "7999")], "sample_rate"),
        ([("encoding", "linear16"), ("sample_rate", "8000.5")], "sample_rate"),
        ([("encoding", "linear16"), ("sample_rate", "8000"), ("channels", "9")], "channels"),
        ([("encoding", "linear16"), ("sample_rate", "8000"), ("channels", "0")], "channels"),
        ([("multichannel", "true")], "channels"),
        ([("multichannel", "perhaps")], "multichannel"),
        ([("language", "xx")], "language"),
        ([("endpointing", "soon")], "endpointing"),
        ([("endpointing", "-1")], "endpointing"),
        ([("utterance_end_ms", "999")], "utterance_end_ms"),
        ([("interim_results", "2")], "interim_results"),
    ],
)
def test_wrong_values_are_explained(query: list[tuple[str, str]], field: str) -> None:
    with pytest.raises(BadStart) as caught:
        live(*query)
    assert caught.value.field == field
    assert "expected" in caught.value.message and "got" in caught.value.message
    assert caught.value.message.endswith(", got nothing") is (field not in dict(query))


NAMES = st.sampled_from(
    "encoding sample_rate channels language endpointing utterance_end_ms keyterm keywords punctuate extra utt_split "
    "detect_language redact".split()
)


@given(st.lists(st.tuples(NAMES | st.text(), st.text() | st.sampled_from(["true", "linear16", "8000", "en"]))))
def test_any_query_gives_options_or_an_error(query: list[tuple[str, str]]) -> None:
    for is_live in (True, False):
        with contextlib.suppress(BadStart):
            parse(query, LANGUAGES, is_live)


@pytest.mark.parametrize("is_live", [True, False])
def test_an_empty_parameter_is_not_given(is_live: bool) -> None:
    """Each of them, and all at once."""
    names = (
        "language detect_language punctuate smart_format interim_results endpointing utterance_end_ms vad_events "
        "utterances utt_split paragraphs diarize max_speakers keyterm keywords search replace redact numerals "
        "profanity_filter extra encoding sample_rate channels multichannel callback callback_method tag"
    ).split()
    for query in [[(name, "")] for name in names] + [[(name, " ") for name in names]]:
        assert parse(query, ["en", "no"], is_live) == parse([], ["en", "no"], is_live)


def test_names_of_lists_may_have_brackets() -> None:
    asked = live(("keyterm[]", "Kowalski"), ("keyterm[1]", "tutti"), ("keyterm", "Ada"), ("punctuate[0]", "true"))
    assert (asked.start.hotwords, asked.punctuate, asked.ignored) == (("Kowalski", "tutti", "Ada"), True, ())


def test_norwegian_is_no_boolean() -> None:
    asked = parse([("detect_language", "no")], ["en", "no"], is_live=False)
    assert (asked.detects_language, asked.start.languages) == (True, ("no",))


def test_a_language_may_have_any_spelling() -> None:
    for text in ("English", "EN", "en_us", "eng"):
        assert live(("language", text)).start.language == "en"
    for text in ("English", "eng"):
        assert live(("language", text)).adjusted == recorded(("language", text)).adjusted == ("language=en",)
    for text in ("en", "EN", "en-US", "en_us"):
        assert live(("language", text)).adjusted == ()
    assert live(("language", "auto")) == live(("language", "multi"))
    asked = parse([("detect_language", "Norwegian"), ("detect_language", "en-GB")], ["en", "no"], is_live=False)
    assert asked.start.languages == ("no", "en")


@pytest.mark.parametrize("parse_query", [live, recorded])
def test_of_two_values_of_an_option_the_answer_names_the_one_that_is_used(
    parse_query: Callable[..., Options],
) -> None:
    query = [("language", "de"), ("punctuate", "false"), ("language", "en"), ("punctuate", "true")]
    options = parse_query(*query)
    assert (options.start.language, options.punctuate) == ("de", False)
    assert options.adjusted == ("language=de", "punctuate=false")
    assert parse_query(("language", "de"), ("language", "de")).adjusted == ()
