"""What a session sends follows the client's text rules, and what was shown as stable stays."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.dialects import made_events
from tests.fakes import segment
from tutti_server.app.session.messages import events
from tutti_server.app.session.observers.ruled_text import RuledText
from tutti_server.app.text_rules.edits import apply
from tutti_server.app.text_rules.pipeline import TextRuleOptions, TextRules
from tutti_server.app.text_rules.redaction import MIN_DIGITS, MIN_PART, Before, Kind

CARD = "4111 1111 1111 1111"
WORD_S = 0.5
"""Every word takes so long."""


def words_of(text: str, at_s: float) -> tuple[events.Word, ...]:
    """The words of a text of which the first begins at a time."""
    return tuple(
        events.Word(word, at_s + index * WORD_S, at_s + (index + 1) * WORD_S, 0.9)
        for index, word in enumerate(text.split())
    )


@dataclass
class Speaker:
    """Sends what a session would, through a filter, and keeps what comes out."""

    options: TextRuleOptions
    wants_words: bool = True
    is_resumed: bool = False
    sent: list[events.Event] = field(default_factory=list)
    _n_words: int = 0
    _n_segments: int = 0
    _text: str = ""

    def __post_init__(self) -> None:
        self.filter = RuledText(self.options, is_resumed=self.is_resumed, wants_words=self.wants_words)

    def _send(self, event: events.Event) -> None:
        self.sent += self.filter.applied(event)

    def interim(self, stable: str, tail: str) -> None:
        start_s = self._n_words * WORD_S
        stable_words = words_of(stable, start_s)
        until_s = start_s + len(stable_words) * WORD_S
        tail_words = words_of(tail, until_s)
        self._send(
            events.Interim(
                utterance=0,
                channel=0,
                start_s=start_s,
                end_s=until_s + len(tail_words) * WORD_S,
                stable=stable,
                tail=tail,
                stable_words=stable_words,
                tail_words=tail_words,
            )
        )

    def segment(self, text: str, *, has_words: bool = True) -> None:
        start_s = self._n_words * WORD_S
        words = words_of(text, start_s)
        self._n_words += len(words)
        self._n_segments += 1
        self._text += text
        shown = words if has_words else ()
        options = {"id": self._n_segments - 1, "source": segment(text), "words": shown, "goes_on": True}
        self._send(made_events.segment(text, start_s, self._n_words * WORD_S, **options))

    def end(self) -> None:
        self._send(made_events.utterance(self._text, 0.0, self._n_words * WORD_S))
        self._text = ""

    @property
    def segments(self) -> list[events.Segment]:
        return [each for each in self.sent if isinstance(each, events.Segment)]

    @property
    def utterances(self) -> list[events.Utterance]:
        return [each for each in self.sent if isinstance(each, events.Utterance)]

    @property
    def stable(self) -> list[str]:
        """The stable text of each interim."""
        return [each.stable for each in self.sent if isinstance(each, events.Interim)]

    def interims_letter_by_letter(self, text: str) -> None:
        for end in range(1, len(text) + 1):
            self.interim(text[:end], "")


def test_a_number_is_held_back_until_it_is_over() -> None:
    speaker = Speaker(TextRuleOptions(redact=("card",)))
    speaker.interim("My card is 4111", " 1111")
    speaker.segment("My card is 4111 1111")
    speaker.segment(" 1111 1111, you know.")
    speaker.end()
    interim = speaker.sent[0]
    assert isinstance(interim, events.Interim)
    assert (interim.stable, interim.tail) == ("My card is", " [NUMBER]")
    assert [word.text for word in interim.tail_words] == ["[NUMBER]"]
    first, second = speaker.segments
    assert (first.text, second.text) == ("My card is", " [CARD_NUMBER], you know.")
    assert (first.start_s, first.end_s, second.start_s, second.end_s) == (0.0, 1.5, 1.5, 4.5)
    assert second.redactions == (events.Redaction("card", 1.5, 3.5),)
    assert second.words[0] == events.Word("[CARD_NUMBER],", 1.5, 3.5, 0.9)
    assert speaker.utterances[0].text == "My card is [CARD_NUMBER], you know."
    assert (second.source.text, second.source.tokens, second.source.words) == (second.text, (), None)


def test_what_is_held_back_comes_at_the_end_of_the_utterance() -> None:
    speaker = Speaker(TextRuleOptions(numerals=True), wants_words=False)
    speaker.segment("I have twenty")
    speaker.end()
    speaker.segment("twenty three")
    speaker.end()
    assert [(each.id, each.text, each.words, each.goes_on) for each in speaker.segments] == [
        (0, "I have", (), True),
        (1, " 20", (), False),
        (2, "23", (), False),
    ]
    assert [each.text for each in speaker.utterances] == ["I have 20", "23"]


def test_the_end_of_a_number_is_muted_though_its_words_are_not_known() -> None:
    """Stable text whose audio is discarded has no words. Its times do not go back, either."""
    speaker = Speaker(TextRuleOptions(redact=("card",)))
    speaker.segment("My card is 4111 1111")
    speaker.segment(" 1111 1111, you know 12", has_words=False)
    speaker.end()
    assert "".join(each.text for each in speaker.segments) == "My card is [CARD_NUMBER], you know 12"
    (redaction,) = [each for one in speaker.segments for each in one.redactions]
    assert redaction.start_s == 3 * WORD_S and redaction.end_s > 6 * WORD_S
    assert all(before.end_s <= after.start_s for before, after in pairwise(speaker.segments))


def test_a_resumed_session_may_begin_inside_a_number() -> None:
    speaker = Speaker(TextRuleOptions(redact=("card",)), is_resumed=True)
    speaker.segment("11 and so on")
    speaker.end()
    assert speaker.utterances[0].text == "[NUMBER] and so on"


def eager_end(text: str) -> events.EagerEnd:
    return events.EagerEnd(utterance=0, channel=0, at_s=1.0, text=text, confidence=0.9)


def test_an_eager_end_that_hid_too_much_is_taken_back() -> None:
    """A number in it may turn out to be longer, as its text may change."""
    speaker = Speaker(TextRuleOptions(redact=("card",)))
    for said in ("In 2025 it was", "In 25 it was"):
        speaker.sent += speaker.filter.applied(eager_end(said))
        speaker.segment(said)
        speaker.end()
    assert [(type(each), getattr(each, "text", "")) for each in speaker.sent] == [
        (events.EagerEnd, "In [NUMBER] it was"),
        (events.Segment, "In 2025 it was"),
        (events.SpeechResumed, ""),
        (events.Utterance, "In 2025 it was"),
        (events.EagerEnd, "In 25 it was"),
        (events.Segment, "In 25 it was"),
        (events.Utterance, "In 25 it was"),
    ]


NAMES_WITH_SIGNS = ("Mary Anne-Sophie Smith", "Dr. J.R. Smith", "नरेंद्र मोदी", "Yahoo e-mail !", "& Sons")
"""Names of which a word has signs inside, or consists of one."""


@pytest.mark.parametrize("name", NAMES_WITH_SIGNS)
def test_a_name_whose_words_have_signs_is_hidden_wherever_it_is_cut(name: str) -> None:
    options = TextRuleOptions(redact_names=(name,))
    parts = name.split()
    for n_before in range(1, len(parts)):
        speaker = Speaker(options)
        speaker.segment(f"I met {' '.join(parts[:n_before])}")
        speaker.segment(f" {' '.join(parts[n_before:])} today.")
        speaker.end()
        assert speaker.utterances[0].text == "I met [NAME] today."
    speaker = Speaker(options)
    text = f"{name} is here today."
    speaker.interims_letter_by_letter(text)
    speaker.segment(text)
    speaker.end()
    assert [each for each in speaker.stable if not speaker.utterances[0].text.startswith(each)] == []


def test_a_name_of_one_word_with_signs_holds_nothing_back() -> None:
    """It ends with its word."""
    speaker = Speaker(TextRuleOptions(redact_names=("J.R.", "Anne-Sophie")))
    speaker.segment("I met Anne-Sophie and")
    speaker.segment(" J.R. today.")
    assert [each.text for each in speaker.segments] == ["I met [NAME] and", " [NAME] today."]


NUMERALS, EMAIL, NAME = (
    TextRuleOptions(numerals=True),
    TextRuleOptions(redact=("email",)),
    TextRuleOptions(redact_names=("Ann Lee",)),
)
NUMBER = ("May ten to", "May ten to 123456", "May ten to 123456 thirty")


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        pytest.param(NUMERALS, "I got an A. And then she left.", id="a letter that may be that of a time"),
        pytest.param(NUMERALS, "Plan P. A hundred of them.", id="another letter that may be that of a time"),
        pytest.param(EMAIL, ("@ ", "@ home ", "@ home we"), id="a lone at sign, which may begin an address"),
        pytest.param(EMAIL, NUMBER, id="a number beside redacted addresses"),
        pytest.param(NAME, NUMBER, id="a number beside redacted names"),
    ],
)
def test_no_stable_text_is_taken_back(options: TextRuleOptions, shown: str | tuple[str, ...]) -> None:
    speaker = Speaker(options)
    if isinstance(shown, str):
        speaker.interims_letter_by_letter(shown)
    else:
        for stable in shown:
            speaker.interim(stable, "")
    assert [(first, then) for first, then in pairwise(speaker.stable) if not then.startswith(first)] == []


def test_a_session_is_resumed_before_what_another_channel_holds_back() -> None:
    ruled_text = RuledText(TextRuleOptions(redact=("card",)), is_resumed=False, wants_words=True)
    speaker = Speaker(TextRuleOptions(redact=("card",)))
    speaker.segment("It is 4111")
    speaker.segment(" hello")
    speaker.end()
    first, _, utterance = speaker.sent
    assert isinstance(first, events.Segment) and isinstance(utterance, events.Utterance)
    held = replace(first, channel=1, text="It is 4111", words=words_of("It is 4111", 0.0), end_s=1.5)
    assert [each.text for each in ruled_text.applied(held) if isinstance(each, events.Segment)] == ["It is"]
    ended = replace(utterance, resume_from_s=(2.0, 1.5), detector_from_s=(0.5, 0.7), final_until_s=1.5)
    (sent,) = ruled_text.applied(ended)
    assert isinstance(sent, events.Utterance)
    assert (sent.resume_from_s, sent.final_until_s, sent.detector_from_s) == ((2.0, 1.0), 1.0, (0.5, None))


def test_a_translation_hides_the_security_code_of_a_card_before_it() -> None:
    speaker = Speaker(TextRuleOptions(redact=("card",)))
    assert speaker.filter.redacted(0, "There are 365 days") == "There are 365 days"
    speaker.segment(f"{CARD}, okay")
    speaker.end()
    assert speaker.filter.redacted(0, "and 123 is it") == "and [CARD_NUMBER] is it"


def test_an_eager_end_and_a_translation_follow_the_rules() -> None:
    speaker = Speaker(TextRuleOptions(redact=("card",), numerals=True))
    eager = eager_end(f"{CARD} costs fifty two dollars")
    assert list(speaker.filter.applied(eager)) == [replace(eager, text="[CARD_NUMBER] costs $52")]
    translation = events.Translation(
        utterance=0,
        channel=0,
        language="de",
        start_s=0.0,
        end_s=1.0,
        text="Sie ist 4111 1111",
        translated_until_s=(0.0,),
    )
    assert list(speaker.filter.applied(translation)) == [replace(translation, text="Sie ist [NUMBER]")]


def test_words_share_the_time_of_what_they_replace() -> None:
    speaker = Speaker(TextRuleOptions(replace=(("kubernetes", "K 8 s"), ("uh", "")), profanity="mask"))
    speaker.segment("uh Kubernetes, shit.")
    speaker.end()
    assert speaker.utterances[0].text == "K 8 s, ****."
    assert [(word.text, word.start_s) for each in speaker.segments for word in each.words] == [
        ("K", 0.5),
        ("8", 0.667),
        ("s,", 0.833),
        ("****.", 1.0),
    ]


WORDS = (
    "one two four 4111 1111 12 123456 double uh uh, for to oh and dash my you card security at dot com twenty hundred "
    "john example john@example.com Ann Lee Annie Jo-Ann , . ? yes sorry shit shitake percent dollars 王 王伟 我4111 "
    "at ten thirty p.m. I May first nineties a"
).split()
RULES = (
    TextRuleOptions(
        redact=("card", "phone", "email"),
        redact_names=("Ann Lee", "Ann", "Ann Jo-Ann Lee", "王伟", "王"),
        numerals=True,
        profanity="mask",
    ),
    TextRuleOptions(redact=("number",), replace=(("my you", "your"), ("uh", ""))),
    TextRuleOptions(numerals=True, replace=(("at dot", "@."),)),
    TextRuleOptions(redact=("email",)),
)


@st.composite
def utterances(draw: st.DrawFn) -> list[list[str]]:
    """Utterances, each as the texts of its segments."""
    lists = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=4)
    return draw(st.lists(lists, min_size=1, max_size=3))


def pieces(segments: Sequence[str]) -> Iterator[str]:
    """The texts with the spaces that the session puts before them."""
    for index, text in enumerate(segments):
        yield f" {text}" if index else text


@pytest.mark.parametrize(
    ("options", "segments", "text"),
    [
        # The words "yes" and "oh" are held back, as an address may follow.
        (RULES[0], ["one", "one one uh uh uh yes", "one"], "111 uh uh uh yes one"),
        (RULES[0], ["one one", "one one uh uh yes oh"], "1111 uh uh yes oh"),
        (TextRuleOptions(replace=(("uh", ""),)), ["yes", "uh, sorry"], "yes, sorry"),
        (TextRuleOptions(replace=(("uh", ""),)), ["yes.", "uh, sorry"], "yes. sorry"),
        (RULES[1], ["yes uh,", "sorry"], "yes, sorry"),
    ],
)
def test_the_text_is_the_same_wherever_it_is_cut(options: TextRuleOptions, segments: list[str], text: str) -> None:
    """A number ends after as many other words, and a word that is left out leaves the same marks."""
    speaker = Speaker(options)
    for each in pieces(segments):
        speaker.segment(each)
    speaker.end()
    assert speaker.utterances[0].text == text


def test_a_word_before_a_repeated_digit_ends_no_number_wherever_the_text_is_cut() -> None:
    speaker = Speaker(RULES[1])
    for segments in (["one"], ["double uh", "one one"]):
        for text in pieces(segments):
            speaker.segment(text)
        speaker.end()
    assert speaker.utterances[1].text == "double [NUMBER]"


@pytest.mark.parametrize("text", ["สวัสดี", "か\u3099か\u3099"])
def test_no_letter_is_cut_from_its_signs(text: str) -> None:
    """Neither between stable text and the tail, nor between two words."""
    speaker = Speaker(TextRuleOptions(redact=("number",)))
    speaker.interim(text, "")
    (interim,) = speaker.sent
    assert isinstance(interim, events.Interim) and interim.stable + interim.tail == text
    parts = [interim.stable, interim.tail, *(word.text for word in interim.stable_words + interim.tail_words)]
    assert not [each for each in parts if unicodedata.category(each[:1] or " ").startswith("M")]


@pytest.mark.parametrize(
    ("words", "n_listed"),
    [
        (("行", "く。"), 1),
        (("行", "く。", "は"), 2),
        (("東京",), 0),
        (("東京", "は"), 1),
    ],
)
def test_the_last_word_without_spaces_is_shown_whole_in_the_tail(words: tuple[str, ...], n_listed: int) -> None:
    """It may go on, and the times of its letters are not known: a word that is listed keeps its mark and its times."""
    timed = tuple(events.Word(text, at, at + 1.0, 0.9) for at, text in enumerate(words))
    ruled_text = RuledText(TextRuleOptions(redact=("number",)), is_resumed=False, wants_words=True)
    interim = events.Interim(
        utterance=0, channel=0, start_s=0.0, end_s=3.0, stable="".join(words), tail="", stable_words=timed
    )
    (shown,) = ruled_text.applied(interim)
    assert isinstance(shown, events.Interim)
    assert (shown.stable_words, shown.tail_words) == (timed[:n_listed], timed[n_listed:])


@given(utterances(), st.sampled_from(RULES), st.data())
def test_stable_text_grows_to_the_final_text_which_is_that_of_the_whole(
    said: list[list[str]], options: TextRuleOptions, data: st.DataObject
) -> None:
    speaker, rules, before = Speaker(options), TextRules(options), Before()
    for segments in said:
        n_sent = len(speaker.sent)
        for text in pieces(segments):
            # Stable text may end inside a word.
            for end in sorted(data.draw(st.lists(st.integers(1, len(text)), max_size=2))):
                speaker.interim(text[:end], text[end:])
            speaker.segment(text)
        speaker.end()
        raw = "".join(pieces(segments))
        final = speaker.utterances[-1].text
        assert final == apply(raw, rules.find(raw, before).edits).lstrip()
        before = replace(rules.after(raw, before), last="")
        shown, seen, words = "", "", list[str]()
        for event in speaker.sent[n_sent:]:
            if isinstance(event, events.Interim):
                assert final.startswith(shown + event.stable)
                assert len(shown + event.stable) >= len(seen)
                seen = shown + event.stable
            if isinstance(event, events.Segment):
                shown += event.text
                words += [word.text for word in event.words]
        assert shown == final
        assert "".join(words) == "".join(final.split())
    assert [each.id for each in speaker.segments] == list(range(len(speaker.segments)))
    times = [time for each in speaker.segments for time in (each.start_s, each.end_s)]
    assert times == sorted(times)


SPOKEN = "zero one two three four five six seven eight nine".split()
DIGITS = {word: str(value) for value, word in enumerate(SPOKEN)}
BETWEEN = ("", "", "", ",", ".", "?", " -", " uh", " sorry,", " yes.")
"""What stands between two parts of a number that is read out."""
TALK = "my card thank you please hello there so the uh okay yes".split()
PLANTED = "4716903825361748"
"""A number that no rule knows, and no digit of which is said otherwise."""


def reading(random: Random) -> list[str]:
    """The words of somebody who reads the number out, spelled and grouped in some way, with talk before and after."""
    spelled = []
    at = 0
    while at < len(PLANTED):
        group = PLANTED[at : at + random.randint(1, 4)]
        at += len(group)
        spelled += [group] if random.random() < 0.5 else [SPOKEN[int(each)] for each in group]
        spelled[-1] += random.choice(BETWEEN)
    talk = random.choices(TALK, k=random.randrange(5))
    return " ".join([*talk, *spelled, *random.choices(TALK, k=random.randrange(5))]).split()


PARTS = [PLANTED[at : at + MIN_PART] for at in range(len(PLANTED) - MIN_PART + 1)]


def has_part(text: str) -> bool:
    """Whether four digits of the planted number stand together in a text, however they are written."""
    tokens = (DIGITS.get(each, each) for each in re.findall(r"[a-z]+|\d", text.lower()))
    shown = "".join(each for each in tokens if each.isdigit())
    return any(part in shown for part in PARTS)


@given(st.randoms(use_true_random=False), st.sampled_from(list(MIN_DIGITS)), st.booleans())
def test_no_output_has_four_digits_of_a_number(random: Random, kind: Kind, has_numerals: bool) -> None:
    """Wherever the text is cut into utterances, segments and interims, and whatever the interims take for it."""
    speaker = Speaker(TextRuleOptions(redact=(kind,), numerals=has_numerals))
    translations = []
    text = said = ""
    for word in (words := reading(random)):
        text += f" {word}" if text or said else word
        if random.random() < 0.4:
            stable = random.randint(0, len(text))
            speaker.interim(text[:stable], text[stable:] + random.choice(["", "?", " what", "%"]))
            speaker.sent += speaker.filter.applied(eager_end(said + text + random.choice(["", " is"])))
        if word is not words[-1] and random.random() < 0.6:
            continue
        translations.append(speaker.filter.redacted(0, text))
        speaker.segment(text)
        said, text = said + text, ""
        if word is words[-1] or random.random() < 0.5:
            speaker.end()
            said = ""
    shown = [*translations]
    for each in speaker.sent:
        match each:
            case events.Interim():
                shown += [each.stable + each.tail, *(word.text for word in (*each.stable_words, *each.tail_words))]
                shown += [" ".join(word.text for word in (*each.stable_words, *each.tail_words))]
            case events.Segment():
                shown += [each.text, " ".join(word.text for word in each.words), each.source.text]
            case events.Utterance() | events.EagerEnd():
                shown.append(each.text)
    shown.append(" ".join(each.text for each in speaker.utterances))
    assert [each for each in shown if has_part(each)] == []
