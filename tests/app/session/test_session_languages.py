"""The languages of a session, with an engine whose detector follows a script."""

from collections.abc import Callable, Container, Mapping
from dataclasses import replace

import numpy as np

from tests.bench import CONFIG, START, Bench, check_promises
from tests.fakes import decode, detected, said, silence, speech
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.messages import commands, events
from tutti_server.engine import api

GERMAN = 50
"""The number of the first German word; the words before are English."""
OFFLINE = replace(START, interim=False)


def hears(window: api.Window) -> Mapping[str, float]:
    """The detector: by the words of the window, English or German, and very certain."""
    levels = np.round(window.samples * 100)
    n_words, n_german = int((levels > 0).sum()), int((levels > GERMAN).sum())
    german = min(max(n_german / max(n_words, 1), 0.001), 0.999)
    return {"en": 1 - german, "de": german}


class LanguageBench(Bench):
    """A session whose engine detects languages."""

    def __init__(
        self,
        start: commands.Start = START,
        config: SessionConfig = CONFIG,
        hears: Callable[[api.Window], Mapping[str, float]] = hears,
    ) -> None:
        self.hears = hears
        super().__init__(start, config)

    def answer_one(self, index: int = 0, lost: Container[int] = ()) -> None:
        self.waiting.rotate(-index)
        job, window = self.waiting.popleft()
        self.waiting.rotate(index)
        self.tell(job, *detected(window, decode(window, lost), self.hears(window)))

    def say(self, *numbers: int) -> None:
        """An utterance of these words. Eight of them are 1.6 s of speech."""
        self.feed(np.concatenate((speech(numbers), silence(0.7))))

    @property
    def languages(self) -> list[str | None]:
        """The language of each segment."""
        return [segment.language for segment in self.of(events.Segment)]


def test_a_mumbled_word_does_not_change_the_language_of_a_call() -> None:
    """One short utterance is decoded in the language of the call; whole sentences in another one are not."""
    bench = LanguageBench()
    bench.say(*range(12))
    bench.say(GERMAN, GERMAN + 1)
    bench.say(*range(12))
    bench.say(*range(GERMAN, GERMAN + 12))
    bench.say(1, 2)
    bench.stop()
    check_promises(bench)
    assert bench.languages == ["en", "en", "en", "de", "de"]
    utterances = bench.of(events.Utterance)
    assert [each.language for each in utterances] == ["en", "en", "en", "de", "de"]
    assert [each.language_probability for each in utterances] == [0.999, 0.001, 0.999, 0.999, 0.001]
    assert [each.language_probability for each in bench.of(events.Segment)] == [0.999, 0.001, 0.999, 0.999, 0.001]


def test_a_window_has_one_language() -> None:
    """Once text is stable, interims and the final are decoded in its language, whatever the detector says later."""
    bench = LanguageBench()
    bench.feed(np.concatenate((speech(range(8)), speech(range(GERMAN, GERMAN + 40)), silence(0.7))))
    assert bench.text() == said([*range(8), *range(GERMAN, GERMAN + 40)])
    fixed = [window for window in bench.windows if window.options.prefix]
    assert {window.options.language for window in fixed} == {"en"}
    assert all(window.options.language is None for window in bench.windows if not window.options.prefix)
    assert [bool(window.options.languages) for window in fixed] == [False] * (len(fixed) - 1) + [True]
    assert bench.languages == ["en"]
    bench.say(GERMAN)
    assert bench.languages == ["en", "de"]


def test_no_text_in_the_wrong_language_becomes_stable() -> None:
    """After English, the first words of German are decoded as English; they are shown, but not as stable."""
    bench = LanguageBench()
    bench.say(*range(12))
    n_before = len(bench.events)
    bench.feed(np.concatenate((silence(0.5), speech(range(GERMAN, GERMAN + 12)))))
    interims = [event for event in bench.events[n_before:] if isinstance(event, events.Interim)]
    windows = [window for window in bench.windows if window.priority is api.Priority.INTERIM][-len(interims) :]
    in_doubt = [interim for interim, window in zip(interims, windows, strict=True) if not window.options.prefix]
    assert len(in_doubt) > 2 and not any(interim.stable for interim in in_doubt[:-1])
    assert interims[-1].stable and windows[-1].options.language == "de"
    bench.feed(silence(0.7))
    assert bench.languages[-1] == "de"
    check_promises(bench)


def test_a_locked_language_is_decided_once() -> None:
    """Windows wait for each other until then, and the detector is not asked afterwards."""
    bench = LanguageBench(
        replace(OFFLINE, locks_language=True), replace(CONFIG, max_finals_in_flight=8, context="none")
    )
    english = np.concatenate([part for _ in range(3) for part in (speech(range(10)), silence(0.7))])
    german = np.concatenate((speech(range(GERMAN, GERMAN + 12)), silence(0.7)))
    bench.feed(np.concatenate((english, german, german)), answer=False)
    while len(bench.waiting) == 1:
        bench.answer_one()
    assert [window.options.language for window in bench.windows] == [None, None, "en", "en", "en"]
    bench.answer_all()
    assert bench.languages == ["en"] * 5
    assert [each.language_probability for each in bench.of(events.Utterance)][2:] == [None] * 3


def test_the_detector_is_asked_for_the_candidates() -> None:
    """All that the model knows, where the client names none. One candidate, or a language, needs no detection."""
    asked = []
    for options in (START, replace(START, languages=("de", "en", "de")), replace(START, languages=("de",))):
        bench = LanguageBench(options)
        bench.say(1, 2, 3)
        asked.append((bench.windows[0].options.language, bench.windows[0].options.languages))
    assert asked == [(None, ("en", "de")), (None, ("de", "en")), ("de", ())]


def test_a_change_of_the_candidates_begins_anew() -> None:
    """Other options leave the evidence as it is."""
    bench = LanguageBench()
    bench.say(*range(12))
    bench.give(commands.Configure.of(START))
    bench.say(GERMAN)
    bench.give(commands.Configure.of(replace(START, locks_language=True)))
    bench.say(GERMAN)
    assert bench.languages == ["en", "en", "de"]


def test_a_resumed_session_goes_on_in_its_language() -> None:
    resume = commands.Resume((1.0,), language=("en",))
    bench = LanguageBench(replace(START, resume=resume))
    bench.say(GERMAN)
    assert bench.languages == ["en"]


def test_the_language_of_text_that_was_not_heard_counts_for_nothing() -> None:
    """What the detector says of a noise without text is no evidence."""
    bench = LanguageBench(hears=lambda window: {"en": 0.001, "de": 0.999})
    for _ in range(4):
        bench.feed(np.concatenate((speech(range(12)), silence(0.7))), answer=False)
        while bench.waiting:
            bench.answer_one(lost=range(100))
    bench.hears = hears
    bench.feed(np.concatenate((speech([1, 2, 3]), silence(0.7))))
    assert bench.languages == ["en"]
