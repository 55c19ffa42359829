"""Stable text of a growing window."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_server.app.session.text.stabilizer import ATTENTION_DISTANCE_S, Agreement, Attention, Stabilizer
from tutti_server.engine.api import Piece


def pieces(text: str) -> tuple[Piece, ...]:
    """The pieces of a text: `<1.5>` is a timestamp, everything else a word whose tokens are its characters."""
    made = []
    for part in text.split():
        if part.startswith("<"):
            made.append(Piece((9000 + round(float(part[1:-1]) * 50),), "", float(part[1:-1])))
        else:
            n_marks = len(part) - len(part.rstrip(",.?"))
            made.append(Piece(tuple(map(ord, part)), f" {part}", n_marks=n_marks))
    return tuple(made)


@pytest.fixture
def stabilizer() -> Stabilizer:
    return Stabilizer(Agreement())


def test_text_is_stable_when_two_hypotheses_agree(stabilizer: Stabilizer) -> None:
    """The last word is kept back, as the audio may have cut it off."""
    stabilizer.update(pieces("<0.0> it is easy to"), 100, 30.0)
    assert (stabilizer.stable, stabilizer.tail) == ("", " it is easy to")
    stabilizer.update(pieces("<0.0> it is easy to tell"), 200, 30.0)
    assert (stabilizer.stable, stabilizer.tail) == (" it is easy to", " tell")
    assert stabilizer.stable_until == 100


def test_timestamps_may_differ_and_are_those_of_the_newer_hypothesis(stabilizer: Stabilizer) -> None:
    stabilizer.update(pieces("<0.2> hello there. <1.0> <1.2> how are"), 100, 30.0)
    stabilizer.update(pieces("<0.1> hello there. <0.9> <1.1> how are you all"), 200, 30.0)
    expected = pieces("<0.1> hello there. <0.9> <1.1> how are")
    assert stabilizer.tokens == tuple(token for piece in expected for token in piece.tokens)


def test_a_word_that_continues_after_the_prefix_is_cut_there(stabilizer: Stabilizer) -> None:
    """Punctuation that joins a stable word later is new text, not a change of the old; nor of the words after it."""
    stabilizer.update(pieces("hello how are"), 100, 30.0)
    stabilizer.update(pieces("hello how are you all"), 200, 30.0)
    assert stabilizer.stable == " hello how are"
    stabilizer.update(pieces("hello how are, you all"), 300, 30.0)
    assert (stabilizer.stable, stabilizer.tail) == (" hello how are, you", " all")


def test_text_after_a_time_beyond_the_end_of_the_audio_is_ignored(stabilizer: Stabilizer) -> None:
    """A made-up timestamp must not become stable, because no later timestamp could follow it."""
    for end in (100, 200):
        stabilizer.update(pieces("<0.0> hello <7.2> <7.4> hello alice, I have"), end, 1.5)
    assert (stabilizer.stable, stabilizer.tail) == ("", " hello")
    stabilizer.update(pieces("<0.0> hello alice, <1.6> <1.7> I have"), 300, 1.6)
    stabilizer.update(pieces("<0.0> hello alice, <1.6> <1.7> I have"), 400, 2.0)
    assert stabilizer.stable == " hello alice, I"


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=8))
def test_stable_text_only_grows(tails: list[list[str]]) -> None:
    """Stable text stays whatever the next hypotheses are, and its tokens spell it."""
    stabilizer = Stabilizer(Agreement())
    for end, tail in enumerate(tails):
        before = stabilizer.stable
        forced = tuple(Piece((token,), f" {chr(token)}") for token in stabilizer.tokens)
        stabilizer.update(forced + pieces(" ".join(tail)), end, 30.0)
        assert stabilizer.stable.startswith(before)
        assert stabilizer.stable == "".join(f" {chr(token)}" for token in stabilizer.tokens)
        assert (stabilizer.stable + stabilizer.tail).startswith(
            "".join(p.text for p in forced + pieces(" ".join(tail)))
        )


def judged(text: str, *logprobs: float) -> tuple[Piece, ...]:
    """The words of a text with their log-probabilities."""
    return tuple(replace(piece, logprob=logprob) for piece, logprob in zip(pieces(text), logprobs, strict=True))


@pytest.mark.parametrize(("logprob", "n_needed"), [(-0.1, 2), (-0.16, 3), (-0.2, 4), (-3.0, 10)])
def test_the_less_sure_a_word_is_the_more_hypotheses_must_have_it(logprob: float, n_needed: int) -> None:
    """The words after it wait with it, however sure they are."""
    stabilizer = Stabilizer(Agreement())
    for n in range(1, n_needed + 1):
        assert stabilizer.stable == ("" if n <= 2 else " it")
        stabilizer.update((*pieces("it"), *judged("is easy to tell", logprob, -0.1, -0.1, -0.1)), n, 30.0)
    assert stabilizer.stable == " it is easy to"


def with_marks(text: str, marks_logprob: float) -> tuple[Piece, ...]:
    """The words of a text, of which the model is sure, with the log-probability of their punctuation."""
    made = judged(text, *[-0.1] * len(text.split()))
    return tuple(replace(piece, marks_logprob=marks_logprob if piece.n_marks else None) for piece in made)


def test_a_word_is_as_sure_as_without_its_punctuation(stabilizer: Stabilizer) -> None:
    """Whether a sentence ends is known later than its words, and so are its capitals."""
    stabilizer.update(with_marks("hello, alice. I have", -2.0), 100, 30.0)
    assert stabilizer.tail == " hello, alice. I have"
    stabilizer.update(with_marks("hello alice, i have a", -2.0), 200, 30.0)
    assert (stabilizer.stable, stabilizer.tail) == (" hello alice, i have", " a")


@pytest.mark.parametrize(
    ("before", "now", "marks_logprob", "stable"),
    [
        ("hello alice. it", "hello alice. it", -0.1, " hello alice."),
        ("hello alice. it", "hello alice. it", -2.0, " hello alice"),
        ("hello alice, it", "hello alice. it", -0.1, " hello alice"),
    ],
)
def test_the_last_punctuation_is_stable_where_it_is_sure_and_seen_twice(
    stabilizer: Stabilizer, before: str, now: str, marks_logprob: float, stable: str
) -> None:
    """Else the next hypothesis is free to choose it, and its draft begins with it."""
    stabilizer.update(with_marks(before, marks_logprob), 100, 30.0)
    stabilizer.update(with_marks(now, marks_logprob), 200, 30.0)
    assert stabilizer.stable == stable
    assert stabilizer.tokens == tuple(ord(each) for each in stable if each != " ")
    assert stabilizer.tokens + stabilizer.draft == tuple(t for piece in pieces(now) for t in piece.tokens)


def test_punctuation_after_stable_text_is_no_word(stabilizer: Stabilizer) -> None:
    """It comes with the word after it, and is not weighed by itself."""
    for end in (100, 200):
        stabilizer.update(with_marks("hello alice. it", -2.0), end, 30.0)
    shown = []
    for text in ("hello alice, it is", "hello alice, it is, so", "hello alice, it is so far"):
        stabilizer.update(with_marks(text, -2.0), 300, 30.0)
        shown.append((stabilizer.stable, stabilizer.tail))
    assert shown == [
        (" hello alice, it", " is"),
        (" hello alice, it is", ", so"),
        (" hello alice, it is so", " far"),
    ]


Heard = tuple[str, tuple[float, ...]]
SURE = -0.05


@pytest.mark.parametrize(
    ("heard", "shown"),
    [
        pytest.param(
            [("it was lobster here we", (-1.0, -0.9, -1.1, -0.1, -0.1))] * 3,
            ["| it was", "| it was", "| it was lobster here we"],
            id="up to the first word without evidence, until hypotheses repeat it",
        ),
        pytest.param(
            [("it was a lob there", (-0.3, -0.9, -0.9, -0.2, -0.1))] * 2,
            ["| it was a", "| it was a lob there"],
            id="the last words need more evidence, as the audio may end inside them",
        ),
        pytest.param(
            [
                ("the gut and the", (-0.6, -0.4, -0.1, -0.1)),
                ("the garbage being cut", (-0.6, -0.9, -0.1, -0.1)),
                ("the gullet being cut", (-0.6, -0.6, -0.1, -0.1)),
                ("the gullet being cut across", (-0.6, -0.25, -0.1, -0.1, -0.1)),
                ("the gullet", (-0.6, -0.6)),
                ("the gullet", (-0.6, -0.6)),
            ],
            [*["| the gut and the"] * 3, *["| the gullet being cut across"] * 2, "| the gullet"],
            id="a word stays until there is evidence for another; two hypotheses take away what follows it",
        ),
        pytest.param(
            [("the gut and the", (-0.6, -0.4, -0.1, -0.1)), ("the gullet being cut", (-0.6, SURE, SURE, SURE))],
            ["| the gut and the", "| the gullet being cut"],
            id="a word that the model is sure of takes the place of another at once",
        ),
        pytest.param(
            [("mend the", (-1.0, SURE)), ("men the", (-0.2, SURE)), ("men the", (-0.2, SURE))],
            ["| mend the", "| mend the", "| men the"],
            id="the first word is shown at once, but not replaced at once",
        ),
        pytest.param(
            [("we are easy to", (-0.16, -0.16, -0.1, -0.1)), *[("we were easy to", (-0.16, -0.16, -0.1, -0.1))] * 2],
            ["| we are easy to", "| we are easy to", " we| were easy to"],
            id="another word begins the count anew",
        ),
        pytest.param(
            [*[(f"Thank you. {word}", (SURE, SURE, -0.5)) for word in ("It", "Or")], ("Thank you. Or is", (SURE,) * 4)],
            ["|", "|", " Thank you. Or| is"],
            id="a stock phrase does not become stable alone",
        ),
        pytest.param(
            [
                *[(f"Thank {word} so", (SURE, -0.5, -0.5)) for word in ("again", "today")],
                ("Thank you. so", (SURE, SURE, -0.5)),
                ("Thank you. so", (SURE, SURE, SURE)),
            ],
            ["| Thank", " Thank|", " Thank|", " Thank| you. so"],
            id="a stock phrase whose beginning is stable is not shown",
        ),
    ],
)
def test_what_is_shown_after_each_hypothesis(heard: list[Heard], shown: list[str]) -> None:
    """Stable text and tail, with a line between them."""
    stabilizer, found = Stabilizer(Agreement()), []
    for text, logprobs in heard:
        stabilizer.update(judged(text, *logprobs), 100, 30.0)
        found.append(f"{stabilizer.stable}|{stabilizer.tail}")
    assert found == shown


@pytest.mark.parametrize(
    "text",
    [
        "Thank you.",
        "Bye!",
        "Thank you very much for your time, and I'll see you in the next video.",
        "ご視聴ありがとうございました",
    ],
)
def test_a_stock_phrase_alone_is_not_shown(stabilizer: Stabilizer, text: str) -> None:
    """Whisper writes it where it has not understood. With more words after it, it is shown."""
    for end in (100, 200):
        stabilizer.update(pieces(text), end, 30.0)
        assert not any((stabilizer.stable, stabilizer.tail, stabilizer.tail_words))
    stabilizer.update(pieces(f"{text} It is"), 300, 30.0)
    assert stabilizer.stable + stabilizer.tail == f" {text} It is"


def peaked(words: tuple[Piece, ...], peak_s: float) -> tuple[Piece, ...]:
    """The words with the peak of their attention."""
    return tuple(replace(word, attention_peak_s=peak_s) for word in words)


def test_nothing_is_kept_after_other_stable_words() -> None:
    """What was shown there followed another word."""
    stabilizer = Stabilizer(Attention())
    stabilizer.update(peaked(judged("she said that", -0.1, -0.1, -0.1), 9.0), 100, 3.0)
    assert stabilizer.tail == " she said that"
    stabilizer.update(peaked(judged("he said it", -0.1, -0.9, -0.9), 0.1), 200, 3.0)
    assert (stabilizer.stable, stabilizer.tail) == (" he said", "")


def attended(text: str, peaks_s: Sequence[float | None]) -> tuple[Piece, ...]:
    return tuple(
        Piece(piece.tokens, piece.text, piece.at_s, peak_s) for piece, peak_s in zip(pieces(text), peaks_s, strict=True)
    )


def test_text_is_stable_if_its_attention_peaks_well_before_the_end() -> None:
    """One hypothesis is enough. A word whose attention peaks too late holds back the words after it."""
    stabilizer = Stabilizer(Attention())
    early, late = 3.0 - ATTENTION_DISTANCE_S, 3.02 - ATTENTION_DISTANCE_S
    peaks_s = [0.1, 0.2, early, late, 1.0, 1.1]
    stabilizer.update(attended("<0.0> it is easy to tell", peaks_s), 100, 3.0)
    assert (stabilizer.stable, stabilizer.tail, stabilizer.stable_until) == (" it is", " easy to tell", 100)
    assert stabilizer.tokens == tuple(t for piece in pieces("<0.0> it is") for t in piece.tokens)


def test_the_last_word_is_kept_back_wherever_its_attention_peaks() -> None:
    """Forced words have no peak, and never become stable by it."""
    stabilizer = Stabilizer(Attention())
    stabilizer.update(attended("it is", [0.1, 0.2]), 100, 30.0)
    assert stabilizer.stable == " it"
    stabilizer.update(attended("it is easy to", [None, 0.2, None, 0.3]), 200, 30.0)
    assert stabilizer.stable == " it is"
