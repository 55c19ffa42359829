"""Words that are written otherwise."""

import re
from collections.abc import Callable
from random import Random
from timeit import repeat

from tutti_server.app.text_rules.edits import Phrases, apply
from tutti_server.app.text_rules.replacing import PROFANITIES, Masking, Replacing


def test_whole_words_are_replaced_in_any_case() -> None:
    rule = Replacing([("Cuba  nets", "Kubernetes"), ("cuba", "Cuba"), ("um", "")])
    text = "um cuba nets, um CUBA NETS and cuban um"
    assert apply(text, rule.find(text).edits) == " Kubernetes, Kubernetes and cuban"
    assert rule.find("in cuba").decided == len("in ")


def test_words_that_are_left_out_leave_no_marks_alone() -> None:
    """Those after a word that stays are its own."""
    rule = Replacing([("um", ""), ("嗯", ""), ("يعني", ""), ("मतलब", "")])
    for text, left in (
        ("Um, I think.", " I think."),
        ("We can, um, um, go. Um... Yes um.", "We can, go. Yes."),
        ("Um.", ""),
        ("嗯，我。", "我。"),
        ("يعني، نعم؟", " نعم؟"),
        ("हाँ मतलब।", "हाँ।"),
        ("मतलब।", ""),
    ):
        assert apply(text, rule.find(text).edits) == left


def test_apostrophes_and_letters_that_are_written_in_two_ways_are_found() -> None:
    rule = Replacing([("o'brien", "A"), ("zoe\u0308 Lee", "B"), ("sis", "C"), ("José", "D")])
    text = "O’Brien, Zoë Lee, ſis, Zoe\u0308 Lee, José and Jose\u0301"
    assert apply(text, rule.find(text).edits) == "A, B, C, B, D and D"
    assert rule.find("in Zoe\u0308 ").decided == len("in ")


def test_a_word_is_not_replaced_inside_another_one_with_signs_for_vowels() -> None:
    """These are no letters for `re`, and nor are accents on their own."""
    rule = Replacing([("राम", "Ram"), ("Andre", "A")])
    text = "रामायण, हाराम, Andre\u0301: राम। Andre"
    assert apply(text, rule.find(text).edits) == "रामायण, हाराम, Andre\u0301: Ram। A"


def test_the_longest_phrase_is_found_however_its_first_letter_is_written() -> None:
    for first, second in (("ſi", "SIS"), ("ß", "ẞa"), ("'s", "’sa"), ("ki", "Kib")):
        rule = Replacing([(first, "A"), (second, "B")])
        assert apply(second, rule.find(second).edits) == "B"


def test_the_longest_phrase_is_found_wherever_it_stands_in_the_list() -> None:
    """And the first of two that are the same."""
    others = [(f"w{number}", "") for number in range(100)]
    for short, long in (("東京", "東京都"), ("王 a", "王 a 伟"), ("Ann", "Ann%")):
        rule = Replacing([(long, "B"), *others, (short, "A"), (long, "C")])
        assert apply(long, rule.find(long).edits) == "B"


def test_hundreds_of_phrases_hold_up_no_other_session() -> None:
    """The event loop looks for them twice in every interim. At most places only first letters are compared."""
    random = Random(1)
    words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(300)]
    text = " ".join(random.choices(words, k=90))
    phrases = Phrases(words[:200])
    plain = re.compile("|".join(rf"((?<!\w){word}(?!\w))" for word in words[:200]), re.IGNORECASE)

    def least_s(work: Callable[[], object]) -> float:
        return min(repeat(work, number=1, repeat=5))

    found = [match.span() for match, _ in phrases.find(text)]
    assert found == [match.span() for match in plain.finditer(text)]
    assert least_s(lambda: list(phrases.find(text))) < least_s(lambda: list(plain.finditer(text))) / 4


def test_words_are_found_where_no_spaces_stand_between_them() -> None:
    rule = Replacing([("王伟", "他")])
    text = "我叫王伟。"
    assert apply(text, rule.find(text).edits) == "我叫他。"


def test_a_letter_is_not_replaced_without_its_signs() -> None:
    """In Thai, and of a letter of Japanese with its mark on its own."""
    for letters, word in (("สวัสด", "สวัสดี"), ("か", "か\u3099")):
        rule = Replacing([(letters, "X")])
        assert apply(f"{word} {letters}", rule.find(f"{word} {letters}").edits) == f"{word} X"


def test_profane_words_become_asterisks() -> None:
    text = "Bullshit, said the Scunthorpe man."
    assert apply(text, Masking(PROFANITIES).find(text).edits) == "********, said the Scunthorpe man."
