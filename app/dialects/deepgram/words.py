"""Text as Deepgram writes it: plain unless punctuation was asked for, and word by word in both ways."""

from collections.abc import Iterable, Sequence
from typing import Any
from unicodedata import category

from app.session.events import Word

# Between letters and digits these belong to the word: "don't", "twenty-five", "3.5".
INNER = "'’-.,:/@&_"


def plain(text: str) -> str:
    """In lower case and without punctuation."""
    return " ".join(word for each in text.lower().split() if (word := _plain_word(each)))


def _plain_word(word: str) -> str:
    def is_kept(at: int, character: str) -> bool:
        if category(character)[0] != "P":
            return True
        is_inside = word[at - 1 : at].isalnum() and word[at + 1 : at + 2].isalnum()
        return character in INNER and is_inside

    return "".join(character for at, character in enumerate(word) if is_kept(at, character))


def wire_words(words: Iterable[Word], is_formatted: bool, language: str | None = None) -> list[dict[str, Any]]:
    """Words as objects; punctuation alone is none.

    Args:
        language: the language they are in, where the client wants to know.
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
        written.append(each)
    return written


def mean_confidence(words: Sequence[dict[str, Any]]) -> float:
    return round(sum(word["confidence"] for word in words) / len(words), 3) if words else 0.0
