"""Translations of a session: what is translated and by whom, in which order it comes, and what a failure costs."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import numpy as np
import pytest

from tests.bench import CONFIG, START, Bench, check_promises
from tests.fakes import MODEL, decode, silence, speech
from tutti_server.app.errors import SessionError
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.core.effects import SessionTranslator
from tutti_server.app.session.decoding.translations import MAX_OPEN, languages_of
from tutti_server.app.session.messages import commands, events
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.errors import EngineFailed

TRANSLATES = replace(MODEL, tasks=("transcribe", "translate"), languages=("en", "de", "fr"))
GERMAN = replace(START, language="de", interim=False)


class Service:
    """A service whose answers come by the test."""

    languages = ("fr", "es", "ja")

    def open(self) -> SessionTranslator:
        raise AssertionError("the bench performs effects by hand")

    def running(self) -> AbstractAsyncContextManager[None]:
        raise AssertionError("the bench has no event loop")


def bench(*translate: str, start: commands.Start = GERMAN, speculates: bool = False) -> Bench:
    config = replace(CONFIG, translator=Service(), speculates=speculates)
    return Bench(replace(start, translate=translate), config, TRANSLATES)


def resumed(
    *translate: str, from_s: float, audio_from_s: float, start_s: float, end_s: float, **fields: object
) -> Bench:
    """A session of a client that lacks translations of an utterance from `start_s` to `end_s`; `fields` are others."""
    missing = commands.Untranslated(
        utterance=7, channel=0, start_s=start_s, end_s=end_s, text="w1 w2", language="de", targets=translate
    )
    missing = replace(missing, **fields)  # type: ignore[arg-type]
    resume = commands.Resume((from_s,), audio_from_s=audio_from_s, untranslated=(missing,))
    return bench(*translate, start=replace(GERMAN, resume=resume))


def talk(*numbers: int) -> Samples:
    return np.concatenate((speech(numbers, gap_samples=640), silence(0.7)))


def answer(session: Bench, at: int, text: str = "", failure: str = "") -> None:
    """The service answers what it was asked as number `at`."""
    session.perform(session.session.translated(session.texts[at].id, text, failure))


def made(session: Bench) -> list[tuple[int, str, str]]:
    return [(each.utterance, each.language, each.text) for each in session.of(events.Translation)]


@pytest.mark.parametrize("speculates", [False, True])
def test_english_comes_after_the_text_from_the_same_window(speculates: bool) -> None:
    """Whether the text was decoded at the pause or at the end, the engine is asked once for both."""
    session = bench("en", speculates=speculates)
    session.feed(talk(1, 2, 3))
    session.stop()
    assert [window.options.translates for window in session.windows] == [True]
    assert made(session) == [(0, "en", "e1 e2 e3")]
    kinds = [type(event) for event in session.events]
    assert kinds[-4:] == [events.Segment, events.Utterance, events.Translation, events.Stopped]
    (utterance,), (translation,) = session.of(events.Utterance), session.of(events.Translation)
    (segment,) = session.of(events.Segment)
    assert (translation.start_s, translation.end_s) == (segment.start_s, segment.end_s)
    assert utterance.translated_until_s == (segment.start_s,), "its own translation was still to come"
    assert translation.translated_until_s == session.session.acknowledged()
    assert not session.jobs
    check_promises(session)


def test_english_is_not_translated_to_english_and_nothing_is_without_the_option() -> None:
    """The language is that of the text. Without targets the engine gets the window as ever."""
    for session in (bench("en", start=replace(GERMAN, language="en")), bench()):
        session.feed(talk(1, 2))
        session.stop()
        assert not made(session) and not session.texts and not session.of(events.Notice)
        assert isinstance(session.events[-1], events.Stopped)
    assert not session.windows[0].options.translates
    assert session.of(events.Utterance)[0].translated_until_s == ()


def test_several_languages_come_each_in_order_and_the_text_waits_for_none() -> None:
    """A service that answers the second utterance first does not change the order; languages do not wait for others."""
    session = bench("en", "fr", "es")
    session.feed(np.concatenate((talk(1, 2), talk(3, 4))))
    assert session.text() == "w1 w2 w3 w4"
    assert [(each.language, each.text, each.source) for each in session.texts] == [
        ("fr", "w1 w2", "de"), ("es", "w1 w2", "de"), ("fr", "w3 w4", "de"), ("es", "w3 w4", "de"),
    ]  # fmt: skip
    session.give(commands.Stop())
    assert not session.of(events.Stopped)
    for at, text in ((2, "f2"), (1, "s1"), (3, "s2"), (0, "f1")):
        answer(session, at, text)
    assert made(session) == [
        (0, "en", "e1 e2"), (1, "en", "e3 e4"), (0, "es", "s1"), (1, "es", "s2"), (0, "fr", "f1"), (1, "fr", "f2"),
    ]  # fmt: skip
    assert isinstance(session.events[-1], events.Stopped)
    until_s = [each.translated_until_s[0] for each in session.of(events.Translation)]
    assert until_s == sorted(until_s)


def test_windows_of_one_utterance_are_joined_as_they_are() -> None:
    """The texts after the first begin with a space, except in languages that write none."""
    session = bench("en", "ja")
    session.feed(speech(range(1, 99), gap_samples=3200))
    session.stop()
    for at in range(len(session.texts)):
        answer(session, at, f"j{at}")
    texts = [each.text for each in session.of(events.Translation) if each.language == "en"]
    assert len(texts) > 1 and "".join(texts) == session.of(events.Utterance)[0].text.replace("w", "e")
    assert [text for _, language, text in made(session) if language == "ja"][:2] == ["j0", "j1"]
    assert isinstance(session.events[-1], events.Stopped)


def test_a_failure_is_reported_once_until_a_translation_succeeds() -> None:
    """The session goes on, and the language is named."""
    session = bench("fr")
    session.feed(np.concatenate([talk(number) for number in range(4)]))
    for at, failure in enumerate(("no answer", "no answer", "", "garbage")):
        answer(session, at, "" if failure else "bien", failure)
    messages = [notice.message for notice in session.of(events.Notice) if notice.code == "translation_failed"]
    assert [message.split(";")[0] for message in messages] == ["fr: no answer", "fr: garbage"]
    assert made(session) == [(2, "fr", "bien")]
    session.stop()
    assert isinstance(session.events[-1], events.Stopped)


@pytest.mark.parametrize("trouble", ["busy", "stalled", "failed", "superseded"])
def test_an_engine_that_does_not_translate_costs_only_the_translation(trouble: str) -> None:
    """After its text, nothing that happens to a window ends the session."""
    session = bench("en")
    session.feed(talk(1, 2), answer=False)
    job, window = session.waiting.popleft()
    session.tell(job, *decode(window)[:-1])
    session.give(commands.Stop())
    assert session.text() == "w1 w2" and not session.of(events.Stopped)
    match trouble:
        case "busy":
            session.tell(job, api.TranslatedEvent(None))
        case "stalled":
            session.perform(session.session.engine_stalled(job, 30.0))
        case "failed":
            session.perform(session.session.engine_error(job, EngineFailed("dead")))
        case "superseded":
            session.tell(job, api.SupersededEvent())
    (notice,) = session.of(events.Notice)
    assert notice.code == "translation_failed" and "busy" in notice.message
    assert isinstance(session.events[-1], events.Stopped) and not session.jobs


def test_the_translation_of_a_pause_in_speech_is_withdrawn() -> None:
    """The text at the pause did not become final, so the engine need not translate it."""
    session = bench("en", speculates=True)
    session.feed(np.concatenate((speech([1, 2, 3], gap_samples=640), silence(0.16))), answer=False)
    job, window = session.waiting.popleft()
    session.tell(job, *decode(window)[:-1])
    assert job in session.jobs
    session.feed(speech([4, 5]), answer=False)
    assert job not in session.jobs
    session.feed(silence(0.7))
    session.stop()
    assert made(session) == [(0, "en", "e1 e2 e3 e4 e5")]


def test_missed_speech_that_is_decoded_again_is_translated_too() -> None:
    """Once, in its place, although the window's own translation lacks it."""
    session = bench("en")
    session.feed(talk(*range(12)), answer=False)
    session.answer_one(lost=range(4, 10))
    session.answer_all()
    session.stop()
    assert "w5" in session.text()
    (translation,) = session.of(events.Translation)
    assert translation.text == session.text().replace("w", "e")


def test_what_is_under_way_is_bounded() -> None:
    """A service that never answers does not fill the memory; later text is not translated."""
    session = bench("fr")
    session.feed(np.concatenate([talk(number) for number in range(MAX_OPEN + 3)]))
    assert len(session.texts) == MAX_OPEN
    for at in range(MAX_OPEN):
        answer(session, at, f"f{at}")
    assert len(made(session)) == MAX_OPEN
    assert [notice.code for notice in session.of(events.Notice)] == ["translation_failed"]


@pytest.mark.parametrize(
    ("model", "translate", "problem"),
    [(TRANSLATES, "it", "en, fr, es, ja"), (MODEL, "en", "fr, es, ja"), (TRANSLATES, "xx", "en, fr, es, ja")],
)
def test_a_language_that_cannot_be_made_is_refused(model: api.ModelInfo, translate: str, problem: str) -> None:
    """The error names the languages that can."""
    session = Bench(replace(GERMAN, translate=(translate,)), replace(CONFIG, translator=Service()), model)
    assert session.failure.code == "bad_start" and problem in session.failure.message
    assert translate in session.failure.message
    assert translate not in languages_of(model, Service())


def test_a_session_that_goes_on_translates_what_its_client_lacks() -> None:
    """From the text by the service, from the audio by the engine; under the client's numbers, before new text."""
    session = resumed("en", "fr", from_s=3.0, audio_from_s=1.0, start_s=1.0, end_s=1.9)
    assert [(each.text, each.language) for each in session.texts] == [("w1 w2", "fr")]
    audio = np.concatenate((speech([1, 2]), silence(10)))[: 2 * SAMPLE_RATE]
    session.feed(np.concatenate((audio, talk(3, 4))))
    session.give(commands.Stop())
    assert session.windows[0].options == api.DecodeOptions(task="translate", language="de")
    assert len(session.windows[0].samples) == 0.9 * SAMPLE_RATE
    answer(session, 0, "un deux")
    answer(session, 1, "trois")
    assert made(session) == [(7, "en", "e1 e2"), (0, "en", "e3 e4"), (7, "fr", "un deux"), (0, "fr", "trois")]
    assert [each.is_earlier for each in session.of(events.Translation)] == [True, False, True, False]
    assert session.text() == "w3 w4" and isinstance(session.events[-1], events.Stopped)


@pytest.mark.parametrize(
    ("from_s", "audio_from_s", "start_s", "end_s", "audio_s"),
    [(3.0, 1.0, 0.2, 2.5, 3.0), (3.0, 1.0, 2.0, 2.5, 1.0), (10.0, 9.996, 9.99, 9.995, 0.5)],
)
def test_audio_that_does_not_come_again_costs_its_translation_only(
    from_s: float, audio_from_s: float, start_s: float, end_s: float, audio_s: float
) -> None:
    """The client has kept no more of it, stops before, or begins after the text."""
    session = resumed("en", from_s=from_s, audio_from_s=audio_from_s, start_s=start_s, end_s=end_s)
    session.feed(silence(audio_s))
    session.stop()
    assert [notice.code for notice in session.of(events.Notice)] == ["translation_failed"]
    assert isinstance(session.events[-1], events.Stopped) and not made(session)


def test_earlier_text_in_a_language_that_the_model_does_not_know_is_translated_nevertheless() -> None:
    """The lost session had another model; the engine would refuse the audio with this language."""
    session = resumed("en", from_s=3.0, audio_from_s=1.0, start_s=1.0, end_s=1.9, language="yue")
    session.feed(np.concatenate((speech([1, 2]), silence(2)))[: 2 * SAMPLE_RATE])
    assert [window.options.language for window in session.windows] == [None]
    assert made(session) == [(7, "en", "e1 e2")]


def test_the_time_up_to_which_there_are_translations_does_not_go_back_when_the_engine_fails() -> None:
    session = bench("en")
    session.feed(silence(2.0))
    session.feed(speech([1, 2, 3]), answer=False)
    before = session.session._port.translated_until()
    session.perform(session.session.fail(SessionError("engine_failed", "it failed", 1011)))
    assert session.of(events.Utterance)[-1].translated_until_s >= before


def test_a_window_that_ends_in_a_pause_whose_translation_was_withdrawn_is_decoded_anew() -> None:
    """A noise in the pause withdraws the translation; then the window is cut where the pause was decoded."""
    session = bench("en", speculates=True)
    session.feed(np.concatenate((silence(0.4), speech([40] * 110, gap_samples=640), silence(0.06))), answer=False)
    ((job, window),) = session.waiting
    session.waiting.clear()
    *before_translation, _ = decode(window)
    session.tell(job, *before_translation)
    noise = np.full(SAMPLE_RATE // 50, 0.41, np.float32)
    session.feed(np.concatenate((silence(0.02), noise, silence(0.06))), answer=False)
    session.feed(talk(50, 51))
    session.stop()
    assert isinstance(session.events[-1], events.Stopped) and not session.of(events.Notice)
    assert "".join(each.text for each in session.of(events.Translation)).endswith("e50 e51")
    assert session.of(events.Translation)[0].text.split()[:100] == ["e40"] * 100


def test_discarded_audio_does_not_take_that_of_earlier_text_with_it() -> None:
    session = resumed("en", from_s=10.0, audio_from_s=8.0, start_s=8.0, end_s=9.9)
    session.feed(speech([1, 2, 3]))
    session.give(commands.Discard())
    session.feed(talk(4, 5, 6))
    session.stop()
    assert made(session) == [(7, "en", "e1 e2 e3 e4 e5 e6")] and not session.of(events.Notice)


@pytest.mark.parametrize(
    "change", [{"channel": 1}, {"end_s": 0.5}, {"end_s": 31.5}, {"end_s": 3.5}, {"targets": ("es",)}]
)
def test_earlier_text_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    """The error names the field."""
    session = resumed("en", from_s=3.0, audio_from_s=1.0, **{"start_s": 1.0, "end_s": 2.0} | change)  # type: ignore[arg-type]
    assert session.failure.code == "bad_start" and f"untranslated.{next(iter(change))}" in session.failure.message
