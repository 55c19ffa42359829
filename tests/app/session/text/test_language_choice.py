"""The policy of languages, with scripted probabilities: what changes the language of a channel, and what does not."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import done
from tutti_server.app.session.text.language_choice import (
    MAX_DOUBT_S,
    MAX_SETTLING_S,
    MIN_CHANGE_S,
    ChannelLanguage,
    LanguageRequest,
    UtteranceLanguage,
)
from tutti_server.engine import api
from tutti_server.engine.decoding.language import choose_language

CANDIDATES = ("en", "de", "nl")
OPEN = LanguageRequest(candidates=CANDIDATES)
LOCKED = replace(OPEN, locks=True)
OPTIONS = api.DecodeOptions()


def clear(language: str, probability: float = 0.98) -> dict[str, float]:
    """What the detector finds in clear speech."""
    rest = (1 - probability) / (len(CANDIDATES) - 1)
    return {each: probability if each == language else rest for each in CANDIDATES}


def settled(language: str = "en", request: LanguageRequest = OPEN) -> ChannelLanguage:
    """A channel that has spoken one language for a minute."""
    channel = ChannelLanguage(request)
    for _ in range(12):
        channel.add(clear(language), 5.0)
    return channel


def decided(channel: ChannelLanguage, probabilities: dict[str, float], speech_s: float) -> str:
    """The language of the next window, as the engine decides it."""
    options = channel.for_final(OPTIONS, speech_s, None, n_before=0)
    return options.language or choose_language(probabilities, dict(options.language_bias))


def heard(language: str, probabilities: dict[str, float]) -> api.DoneEvent:
    return replace(done(" a", language=language), language_probabilities=probabilities)


shares = st.tuples(*[st.floats(0.0, 1.0)] * 3).filter(lambda each: sum(each) > 0.1)
distributions = shares.map(lambda each: dict(zip(CANDIDATES, (share / sum(each) for share in each), strict=True)))
windows = st.lists(st.tuples(distributions, st.floats(0.05, 30.0)), max_size=12)


@given(windows, st.floats(0.0, MIN_CHANGE_S * 0.99), distributions)
def test_one_short_utterance_never_changes_a_settled_language(
    before: list[tuple[dict[str, float], float]], speech_s: float, mumbled: dict[str, float]
) -> None:
    """Neither its own windows nor later ones, however certain the detector is, after any call of at least a minute."""
    channel = ChannelLanguage(OPEN)
    for probabilities, length_s in before:
        channel.add(probabilities, length_s)
    for _ in range(12):
        channel.add(clear("en"), 5.0)
    assert decided(channel, mumbled, speech_s) == "en"
    channel.add(mumbled, speech_s)
    assert channel.evidence.language == "en"


def test_unclear_speech_changes_the_language_when_enough_of_it_has_come() -> None:
    """Odds of 2 to 1 are worth 0.7 a second, so six seconds of them pass the margin of 4."""
    channel = settled()
    unclear = {"en": 0.3, "de": 0.6, "nl": 0.1}
    languages = []
    for _ in range(8):
        channel.add(unclear, 1.0)
        languages.append(channel.evidence.language)
    assert languages == ["en"] * 5 + ["de"] * 3


@given(windows)
def test_a_window_is_decoded_in_the_language_that_it_leaves_behind(
    before: list[tuple[dict[str, float], float]],
) -> None:
    """What the engine decides by the bias is what the evidence says after the window."""
    channel = ChannelLanguage(OPEN)
    for probabilities, length_s in before:
        totals = sorted(channel.evidence.totals(probabilities, length_s).values())
        language = decided(channel, probabilities, length_s)
        channel.add(probabilities, length_s)
        if totals[-1] - totals[-2] > 1e-6 and length_s >= 0.1:
            assert channel.evidence.language == language


@given(windows)
def test_a_locked_language_never_changes(after: list[tuple[dict[str, float], float]]) -> None:
    """The engine is not even asked for the probabilities."""
    channel = settled(request=LOCKED)
    assert channel.is_locked
    for probabilities, length_s in after:
        assert channel.for_final(OPTIONS, length_s, None, 0) == replace(OPTIONS, language="en")
        assert channel.for_interim(OPTIONS, length_s, None) == replace(OPTIONS, language="en")
        channel.add(probabilities, length_s)
    assert channel.evidence.language == "en"


def test_a_language_is_locked_after_enough_evidence_only() -> None:
    """A first word does not lock it; three seconds of clear speech do, or thirty that are not clear."""
    channel = ChannelLanguage(LOCKED)
    channel.add(clear("de"), 0.4)
    assert not channel.is_locked and channel.must_wait
    channel.add(clear("en"), 4.0)
    assert channel.is_locked and not channel.must_wait
    assert channel.evidence.language == "en"
    unclear = ChannelLanguage(LOCKED)
    for _ in range(round(MAX_SETTLING_S)):
        assert not unclear.is_locked
        unclear.add({"en": 0.34, "de": 0.33, "nl": 0.33}, 1.0)
    assert unclear.is_locked


def test_windows_side_by_side_do_not_depend_on_which_is_done_first() -> None:
    """Each is decided by the evidence of the same windows: those that must be done before it is submitted."""
    talk = [(clear("en"), 5.0)] * 4 + [(clear("de"), 5.0)] * 4
    biases = []
    for lead in range(4):  # how many of the windows before are not done
        channel = ChannelLanguage(OPEN, delay=4)
        found, n_done = [], 0
        for number in range(len(talk)):
            while n_done < number - lead:
                channel.add(*talk[n_done])
                n_done += 1
            found.append(dict(channel.for_final(OPTIONS, 5.0, None, number - n_done).language_bias))
        biases.append(found)
    assert biases[0] == biases[1] == biases[2] == biases[3]
    assert biases[0][3] == {} and set(biases[0][4]) == {"en"}


def test_missed_speech_may_be_in_another_language_than_its_window() -> None:
    """Not a mumbled word of it, and not where the client names the language, or has it decided once."""
    for speech_s, language in ((MIN_CHANGE_S * 0.9, "en"), (MIN_CHANGE_S * 1.1, "de")):
        options = ChannelLanguage(OPEN).for_missed(OPTIONS, speech_s, "en")
        assert options.language is None and options.languages == CANDIDATES
        assert choose_language(clear("de"), dict(options.language_bias)) == language
    for channel in (ChannelLanguage(LanguageRequest(named="en")), settled("en", LOCKED)):
        assert channel.for_missed(OPTIONS, 5.0, "en") == replace(OPTIONS, language="en")


def test_text_waits_while_its_language_is_in_doubt() -> None:
    """In a new session until there was half a second of clear speech; later where another language is likelier."""
    new = ChannelLanguage(OPEN)
    assert new.is_in_doubt(heard("en", clear("en")), 0.3)
    assert not new.is_in_doubt(heard("en", clear("en")), 0.6)
    channel = settled()
    assert not channel.is_in_doubt(heard("en", clear("en")), 0.3)
    assert channel.is_in_doubt(heard("en", clear("de")), 0.3)
    assert not channel.is_in_doubt(heard("en", {"en": 0.4, "de": 0.5, "nl": 0.1}), 0.3)
    assert not channel.is_in_doubt(heard("en", {"en": 0.3, "de": 0.7, "nl": 0.0}), MAX_DOUBT_S)
    assert not channel.is_in_doubt(heard("de", clear("de")), 2.0)


def test_a_resumed_session_goes_on_with_the_language_of_before() -> None:
    """A short word does not change it. A language that is to be locked must still be confirmed."""
    resumed = ChannelLanguage(OPEN, before="en")
    assert decided(resumed, clear("de", 0.999), 0.4) == "en"
    locking = ChannelLanguage(LOCKED, before="en")
    assert decided(locking, clear("de", 0.999), 0.4) == "en"
    assert not locking.is_locked
    locking.add(clear("en"), 2.0)
    assert locking.is_locked
    assert ChannelLanguage(OPEN, before="fr").evidence.language is None


def test_an_utterance_has_the_language_of_most_of_its_text() -> None:
    utterance = UtteranceLanguage(ChannelLanguage(OPEN))
    for language, probability, text in (("de", 0.71, " Ja."), ("en", 0.98765, " That is it."), ("en", None, " Yes.")):
        utterance.add(language, probability, text)
    assert utterance.language == "en"
    assert [utterance.probability(each) for each in ("en", "de", None)] == [0.988, 0.71, None]
