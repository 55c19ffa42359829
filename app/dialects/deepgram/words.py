"""Text and words as Deepgram writes them: without case and punctuation, unless formatting is on."""

import re
from collections.abc import Iterable, Sequence
from typing import Any
from unicodedata import category

from tutti_server.app.session.messages.events import Word

INNER_PUNCTUATION = "'’-.,:/@&_"
"""Characters that belong to a word when they stand between letters and digits: "don't", "twenty-five", "3.5"."""

ELLIPSES = ".…"
"""Characters that part two words without a space, as dashes do: "wait...what", "I—I"."""

RULED = re.compile(r"(\[[A-Z_]+\]|\*+)")
"""What text rules write instead of words; it stays as it is."""


def plain(text: str) -> str:
    """A text in lower case and without punctuation."""
    return " ".join(word for each in text.split() if (word := _plain_word(each)))


def _plain_word(word: str) -> str:
    # Without spaces between words, a label stands among others. Every second part is a label.
    parts = (part if number % 2 else _plain_part(part) for number, part in enumerate(RULED.split(word)))
    return " ".join("".join(parts).split())


def _plain_part(part: str) -> str:
    part = part.lower()

    def is_kept(index: int, character: str) -> bool:
        beside = part[index - 1 : index], part[index + 1 : index + 2]
        if category(character)[0] != "P" or (character in "%٪％" and any(each.isdigit() for each in beside)):
            return True
        # A letter, a sign for its vowel or its accent, or a digit.
        return character in INNER_PUNCTUATION and all(category(each or " ")[0] in "LMN" for each in beside)

    def without(character: str) -> str:
        return " " if category(character) == "Pd" or character in ELLIPSES else ""

    return "".join(each if is_kept(index, each) else without(each) for index, each in enumerate(part))


def wire_words(words: Iterable[Word], is_formatted: bool, language: str | None = None) -> list[dict[str, Any]]:
    """Words as JSON objects. A word that is punctuation alone is left out.

    Args:
        is_formatted: include each word with its case and punctuation.
        language: the language of the words, if the client wants to know it.
    """
    written = []
    for word in words:
        if not (text := plain(word.text)):
            continue
        each: dict[str, Any] = {
            "word": text,
            "start": word.start_s,
            "end": word.end_s,
            "confidence": word.confidence,
        }
        if is_formatted:
            each["punctuated_word"] = word.text
        if language:
            each["language"] = language
        if word.speaker is not None:
            each["speaker"] = word.speaker
        written.append(each)
    return written


def phrases_in(queries: Sequence[str], words: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Find phrases among words as JSON objects: Deepgram's field `search`.

    Deepgram looks for similar sounds; here the same words are looked for.
    """
    texts = [word["word"] for word in words]
    answers = []
    for query in queries:
        wanted = plain(query).split()
        places = [at for at in range(len(texts) - len(wanted) + 1) if wanted and texts[at : at + len(wanted)] == wanted]
        hits = [words[at : at + len(wanted)] for at in places]
        answers.append({"query": query, "hits": [_hit(each) for each in hits]})
    return answers


def _hit(words: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "confidence": mean_confidence(words),
        "start": words[0]["start"],
        "end": words[-1]["end"],
        "snippet": " ".join(word["word"] for word in words),
    }


def mean_confidence(words: Sequence[dict[str, Any]]) -> float:
    """The mean confidence of words as JSON objects; 0 without words."""
    return round(sum(word["confidence"] for word in words) / len(words), 3) if words else 0.0
