"""What must not be written down is found, also in pieces."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.app.text_rules.edits import apply
from tutti_server.app.text_rules.pipeline import TextRuleOptions, TextRules
from tutti_server.app.text_rules.redaction import (
    KINDS,
    LABELS,
    MIN_DIGITS,
    Before,
    Kind,
    Redaction,
)

CARD = "4111 1111 1111 1111"
NOTHING = Before()


def redacted(text: str, *kinds: Kind, names: tuple[str, ...] = (), before: Before = NOTHING) -> str:
    return apply(text, Redaction(kinds, names).find(text, before).edits)


@pytest.mark.parametrize(
    ("kind", "text", "result"),
    [
        ("card", f"It is {CARD}, thanks.", "It is [CARD_NUMBER], thanks."),
        ("card", "It is" + " four one one one" * 4 + ", you know", None),
        ("card", "It is 4111 1111 1111 1112, thanks.", "It is [CARD_NUMBER], thanks."),
        ("card", "4111 1111 1111 1111 12 27 123 is it", "[CARD_NUMBER] is it"),
        ("card", f"{CARD} it is, and it expires 12/27, the code is 123, I think.", None),
        ("card", "The security code is 123", "The security code is [CARD_NUMBER]"),
        ("card", "call 415 555 1234 now", "call 415 555 1234 now"),
        ("card", "It is 4111? Yes. 1111? Right. 1111 sorry 1111.", "It is [CARD_NUMBER]."),
        ("card", "It is 4111 1111 1111 1112 1226 999 now", "It is [CARD_NUMBER] now"),
        ("card", "The C-V-V is 123", "The C-V-V is [CARD_NUMBER]"),
        ("card", "我的卡号是4111111111111111好吗", "我的卡号是[CARD_NUMBER]好吗"),
        ("phone", "call (415) 555-1234 now", "call [PHONE_NUMBER] now"),
        ("ssn", "it is 123-45-6789 and so", "it is [SSN] and so"),
        ("account", "account 123456 please", "account [ACCOUNT_NUMBER] please"),
        ("number", "it is 123 plus 45 it is", "it is [NUMBER] plus 45 it is"),
        ("number", "it is ４１１１ ١٢٣ ②³ it is", "it is [NUMBER] it is"),
        ("number", "it is quadruple one treble two it is", "it is [NUMBER] it is"),
        ("number", "it is twenty-three oh five it is", "it is [NUMBER] it is"),
        ("number", "it is sixty hundred it is", "it is [NUMBER] it is"),
        ("number", "it is sixty, two it is", "it is [NUMBER] it is"),
        ("number", "it is sixty-two it is", "it is sixty-two it is"),
        ("phone", "it is sixty double two, fifty one seven it is", "it is [PHONE_NUMBER] it is"),
        ("phone", "it is double oh, thirteen 84 1 it is", "it is [PHONE_NUMBER] it is"),
        ("phone", "it is thirteen 84 1 double oh it is", "it is [PHONE_NUMBER] it is"),
        ("number", "it is for one to two it is", "it is for [NUMBER] it is"),
        ("number", "it is A12345678 it is", "it is [NUMBER] it is"),
        ("number", "in the 1990s, and 2080s, on the 1st", "in the 1990s, and 2080s, on the 1st"),
        ("email", "write to john.smith@example.com today", "write to [EMAIL] today"),
        ("email", "write to john dot smith at example dot co dot uk today", "write to [EMAIL] today"),
        ("email", "write to j. o. h. n. at sign example dot health today", "write to [EMAIL] today"),
        ("email", "write to john @ example.com today", "write to [EMAIL] today"),
        ("email", "meet me at noon today", "meet me at noon today"),
    ],
)
def test_each_kind_is_replaced_by_its_label(kind: Kind, text: str, result: str | None) -> None:
    found = redacted(text, kind)
    if result is None:
        assert not any(each.isdigit() for each in found)
        assert "one" not in found
    else:
        assert found == result


def test_names_are_whole_words_in_any_case() -> None:
    assert redacted("Ann Lee and ann met Annie.", names=("Ann", "Ann Lee")) == "[NAME] and [NAME] met Annie."
    assert redacted("Zoe\u0308 met Zoë.", names=("Zoë",)) == "[NAME] met [NAME]."
    for name in ("奈々", "𠮷田", "ﾀﾅｶ"):
        assert redacted(f"今日は{name}さんが", names=(name,)) == "今日は[NAME]さんが"


@pytest.mark.parametrize(
    "utterances",
    [
        {
            "My card is 4111": "My card is [NUMBER]",
            "1111.": "[NUMBER].",
            "11": "[NUMBER]",
            "11 and 1111 okay": "[NUMBER] okay",
            "In 2025 it ends": "In 2025 it ends",
            "so 12": "so 12",
        },
        {
            "My card is 4111 1111": "My card is [NUMBER]",
            "Yes.": "Yes.",
            "uh, for one one one okay": "uh, for [NUMBER] okay",
            "In 2025 it ends": "In 2025 it ends",
        },
    ],
)
def test_a_number_cut_by_a_pause_is_redacted_in_both_utterances(utterances: dict[str, str]) -> None:
    """A part at the end may go on; one at the beginning may go on with that, also after words that do not count."""
    rule, before = Redaction(("card",)), NOTHING
    for text, shown in utterances.items():
        assert apply(text, rule.find(text, before).edits) == shown
        before = rule.after(text, before)


def test_the_check_digit_tells_a_card_from_another_number() -> None:
    """Either way, the number is redacted."""
    assert redacted("4222 2222 2222 2 it", "card", "phone") == "[CARD_NUMBER] it"
    assert redacted("4222 2222 2222 3 it", "card", "phone") == "[PHONE_NUMBER] it"


@pytest.mark.parametrize("kind", MIN_DIGITS)
def test_a_number_is_redacted_whatever_number_follows_it_at_once(kind: Kind) -> None:
    for n_digits in range(MIN_DIGITS[kind], 60):
        assert redacted(f"it is {'4' * n_digits} it is", kind) == f"it is {LABELS[kind]} it is"


@pytest.mark.parametrize(
    "address",
    ["ann dot lee at example dot com", "ann at dash dot com", "ann at sign dash dot com", "a n n at plus dot io"],
)
def test_nothing_of_an_address_is_shown_before_it_is_whole(address: str) -> None:
    rule, before, words = Redaction(("email",)), "write to ", address.split()
    for n_words in range(1, len(words)):
        assert rule.find(before + " ".join(words[:n_words]), NOTHING).decided <= len(before)


def test_a_word_that_repeats_for_a_whole_window_takes_no_longer_than_others() -> None:
    """Models repeat themselves; a pattern with nested repetitions took a minute for 2000 characters."""
    rules = TextRules(TextRuleOptions(redact=KINDS, redact_names=("Ann Lee",), numerals=True, profanity="mask"))
    started = time.perf_counter()
    for words in ("a-", "a ", "a@", "a dot ", "a at ", "one ", "one hundred and ", "cvv 123 ", "我", "4"):
        rules.find(words * (2000 // len(words)), NOTHING)
    assert time.perf_counter() - started < 10


def test_a_security_code_is_redacted_in_the_utterance_after_the_card() -> None:
    rule = Redaction(("card",))
    before = rule.after(f"It is {CARD}.", NOTHING)
    text = "And then 123 on the back"
    assert apply(text, rule.find(text, rule.after("Fine.", Before(0, before.words_since_card))).edits) == (
        "And then [CARD_NUMBER] on the back"
    )


WORDS = (
    "one two four 4111 1111 12 123456 double uh for to oh and dash the my you card security code is at dot com "
    "john example john@example.com Ann Lee , . ? $5 yes sorry sign 我4111 j o"
).split()
TEXTS = st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)


@given(TEXTS, st.integers(0, 200), st.sets(st.sampled_from(KINDS), min_size=1), st.booleans())
def test_what_is_decided_stays_when_more_text_comes(text: str, length: int, kinds: set[Kind], has_names: bool) -> None:
    """The text goes on at a word, as the text of a session does."""
    begin = text[: text.rfind(" ", 0, length) + 1].rstrip() if length < len(text) else text
    names = ("Ann Lee", "Lee") if has_names else ()
    rules = TextRules(TextRuleOptions(redact=tuple(kinds), redact_names=names))
    first, whole = rules.find(begin, NOTHING), rules.find(text, NOTHING)
    cut = first.decided
    assert [each for each in first.edits if each.end <= cut] == [each for each in whole.edits if each.end <= cut]
    assert not any(each.start < cut < each.end for each in whole.edits)


@given(TEXTS, st.integers(0, 200), st.sets(st.sampled_from(KINDS), min_size=1))
def test_a_text_in_pieces_is_redacted_like_the_whole(text: str, length: int, kinds: set[Kind]) -> None:
    """Up to where it is decided, a piece can be taken away without a change of the rest."""
    begin = text[: text.rfind(" ", 0, length) + 1].rstrip() if length < len(text) else text
    rule = TextRules(TextRuleOptions(redact=tuple(kinds)))
    first = rule.find(begin, NOTHING)
    cut = first.decided
    rest = rule.find(text[cut:], rule.after(text[:cut], NOTHING))
    shown = apply(text, first.edits, 0, cut) + apply(text[cut:], rest.edits)
    assert shown == apply(text, rule.find(text, NOTHING).edits)
