"""The options of Flux: what a URL asks for, and what `Configure` changes."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compat.conformance import approximated, refused, supported
from tutti_server.app.dialects.deepgram.flux_options import FluxOptions, FluxThresholds, configured, parse
from tutti_server.app.errors import BadStart
from tutti_server.app.media.pcm import AudioFormat, Encoding
from tutti_server.app.text_rules.pipeline import TextRuleOptions
from tutti_server.engine.api import MAX_HOTWORDS

FLUX = "deepgram-flux"
LANGUAGES = ("en", "de", "fr")
ENGLISH, MULTI = ("model", "flux-general-en"), ("model", "flux-general-multi")


def options(*query: tuple[str, str]) -> FluxOptions:
    return parse(query if "model" in dict(query) else [ENGLISH, *query], LANGUAGES)


@supported(FLUX, "model: flux-general-en, flux-general-multi")
def test_the_model_says_which_languages() -> None:
    assert options().language == "en"
    assert options(MULTI).language is None
    assert options(MULTI).is_multilingual and not options().is_multilingual
    for query, got in (([], "nothing"), ([("model", "nova-3")], "'nova-3'")):
        with pytest.raises(BadStart, match=f"model: expected flux-general-en or flux-general-multi, got {got}$"):
            parse(query, LANGUAGES)


def test_a_model_of_one_language_detects_none() -> None:
    """A client that asks for detection gets a note that says so."""
    assert parse([MULTI], ("en",)).adjusted == ("model=flux-general-en",)
    assert parse([ENGLISH], ("en",)).language == "en"
    assert parse([MULTI, ("language_hint", "en")], ("en",)).language == "en"


@supported(FLUX, "language_hint")
def test_language_hints() -> None:
    one = options(MULTI, ("language_hint", "de-AT"))
    assert (one.language, one.candidates, one.language_hints, one.adjusted) == ("de", (), ("de",), ())
    several = options(MULTI, ("language_hint", "de"), ("language_hint", "fr"))
    assert (several.language, several.candidates, several.language_hints) == (None, ("de", "fr"), ("de", "fr"))
    assert several.adjusted == ()
    assert parse([MULTI, ("language_hint", "zh-HK")], ("en", "zh")).language == "zh"
    with pytest.raises(BadStart, match="language_hint: expected one of en, de, fr"):
        options(MULTI, ("language_hint", "tlh"))
    with pytest.raises(BadStart, match="language_hint: expected none with another model than flux-general-multi"):
        options(("language_hint", "en"))


@supported(FLUX, "encoding: linear16, linear32, mulaw, alaw")
@pytest.mark.parametrize(
    ("name", "encoding"),
    [("linear16", "pcm_s16le"), ("linear32", "pcm_f32le"), ("mulaw", "mulaw"), ("alaw", "alaw")],
)
def test_raw_audio_names_its_rate(name: str, encoding: Encoding) -> None:
    assert options(("encoding", name), ("sample_rate", "8000")).audio == AudioFormat(encoding, 8000)
    with pytest.raises(BadStart, match="sample_rate: expected an integer from 8000 to 48000"):
        options(("encoding", name))


@supported(FLUX, "encoding: opus, ogg-opus (in Ogg or WebM)")
@pytest.mark.parametrize("query", [(), (("encoding", "opus"),), (("encoding", "ogg-opus"), ("sample_rate", "48000"))])
def test_containers_describe_themselves(query: tuple[tuple[str, str], ...]) -> None:
    assert options(*query).audio is None


def test_other_encodings_are_refused() -> None:
    with pytest.raises(BadStart, match="encoding: expected one of linear16"):
        options(("encoding", "flac"))


@supported(FLUX, "eager_eot_threshold, eot_timeout_ms")
@approximated(
    FLUX,
    "eot_threshold",
    how="a turn of less confidence waits too, up to `eot_timeout_ms`: the longer, the less confidence there is",
)
def test_thresholds_decide_when_a_turn_ends() -> None:
    default = options().thresholds.endpointing
    assert (default.mode, default.end_confidence, default.eager_confidence) == ("adaptive", 0.7, None)
    assert (default.silence_ms, default.max_silence_ms) == (500, 5000)
    asked = options(("eot_threshold", "0.8"), ("eager_eot_threshold", "0.4"), ("eot_timeout_ms", "500"))
    endpointing = asked.thresholds.endpointing
    assert (endpointing.end_confidence, endpointing.eager_confidence) == (0.8, 0.4)
    assert (endpointing.silence_ms, endpointing.max_silence_ms) == (500, 500)


def test_a_client_may_end_all_turns_itself() -> None:
    """With `eot_threshold=1.0` only the timeout and the client end a turn, also one whose text is not known."""
    endpointing = options(("eot_threshold", "1.0"), ("eot_timeout_ms", "60000")).thresholds.endpointing
    assert (endpointing.end_confidence, endpointing.silence_ms, endpointing.max_silence_ms) == (1.0, 60_000, 60_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("eot_threshold", "0.4"),
        ("eot_threshold", "1.1"),
        ("eot_threshold", "nan"),
        ("eot_threshold", "sure"),
        ("eager_eot_threshold", "0.2"),
        ("eager_eot_threshold", "0.8"),
        ("eot_timeout_ms", "100"),
        ("eot_timeout_ms", "60001"),
    ],
)
def test_thresholds_have_limits(name: str, value: str) -> None:
    """An eager end is not later than the end: the default of the one is the limit of the other."""
    with pytest.raises(BadStart, match=f"{name}: expected"):
        options((name, value))


@approximated(FLUX, "keyterm", how=f"the first {MAX_HOTWORDS}; `x-tutti-adjusted` says how many")
def test_key_terms() -> None:
    assert options(("keyterm", "tutti"), ("keyterm", "North Wind")).keyterms == ("tutti", "North Wind")
    many = options(*[("keyterm", f"word{number}") for number in range(MAX_HOTWORDS + 1)])
    assert len(many.keyterms) == MAX_HOTWORDS
    assert many.adjusted == (f"keyterm={MAX_HOTWORDS} of {MAX_HOTWORDS + 1}",)


@supported(FLUX, "mip_opt_out")
@refused(FLUX, "tag", how="named in `x-tutti-ignored`")
def test_options_without_effect_are_named() -> None:
    query = [("mip_opt_out", "true"), ("tag", "a")]
    assert options(*query).ignored == ("tag",)


@approximated(FLUX, "numerals, profanity_filter", how="English only; elsewhere named in `x-tutti-ignored`")
@approximated(FLUX, "redact", how="as in `/v1/listen`")
@supported(FLUX, "replace")
def test_text_rules() -> None:
    query = [("numerals", "true"), ("profanity_filter", "true"), ("redact", "numbers"), ("replace", "a:b")]
    rules = TextRuleOptions(numerals=True, profanity="mask", redact=("number",), replace=(("a", "b"),))
    assert options(*query).text_rules == rules
    multilingual = options(MULTI, *query)
    assert multilingual.text_rules == replace(rules, numerals=False, profanity=None)
    assert multilingual.ignored == ("numerals", "profanity_filter")
    with pytest.raises(BadStart, match="redact: expected one of pci"):
        options(("redact", "pii"))


def test_configure_keeps_what_it_leaves_out() -> None:
    before = options(MULTI, ("keyterm", "tutti"), ("eot_threshold", "0.8"))
    assert configured(before, {"type": "Configure"}) == before
    after = configured(before, {"thresholds": {"eager_eot_threshold": 0.5}, "keyterms": []})
    assert after.thresholds == FluxThresholds(0.8, 0.5)
    assert after.keyterms == ()
    assert configured(after, {"thresholds": {"eager_eot_threshold": None}}).thresholds == FluxThresholds(0.8)
    assert configured(before, {"keyterms": "Kowalski", "numerals": "false"}).keyterms == ("Kowalski",)


def test_configure_drops_the_key_terms_that_the_url_would_drop() -> None:
    """And follows the rest of the message."""
    terms = ["tutti", "x" * 1000, "", *(f"word{number}" for number in range(MAX_HOTWORDS))]
    after = configured(options(), {"keyterms": terms, "thresholds": {"eot_threshold": 0.8}})
    assert after.keyterms == options(*[("keyterm", term) for term in terms]).keyterms
    assert len(after.keyterms) == MAX_HOTWORDS and after.thresholds == FluxThresholds(0.8)


@pytest.mark.parametrize("name", ["numerals", "profanity_filter"])
def test_configure_changes_no_rule_of_the_start_silently(name: str) -> None:
    """Pipecat sends these rules with any others that change; what is in force already is no change."""
    for is_on in (False, True):
        before = options((name, str(is_on).lower()))
        assert configured(before, {name: is_on}) == configured(before, {name: None}) == before
        with pytest.raises(BadStart, match=f"{name}: expected {str(is_on).lower()}, as at the start"):
            configured(before, {name: not is_on})


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["thresholds", "keyterms", "language_hints", "numerals", "profanity_filter"])
THRESHOLDS = st.dictionaries(st.sampled_from(["eot_threshold", "eager_eot_threshold", "eot_timeout_ms"]), JSON)


@given(st.dictionaries(FIELDS, JSON | THRESHOLDS))
def test_any_configure_is_followed_or_explained(message: dict[str, object]) -> None:
    """What is in force is always possible."""
    with contextlib.suppress(BadStart):
        after = configured(options(MULTI), message)
        thresholds = after.thresholds
        assert 0.5 <= thresholds.eot_threshold <= 1
        assert thresholds.eager_eot_threshold is None or 0.3 <= thresholds.eager_eot_threshold <= 0.9
        assert 500 <= thresholds.eot_timeout_ms <= 60_000
        assert all(hint in LANGUAGES for hint in after.language_hints)
