"""What Whisper writes where it has not understood, because many of the subtitles that it was trained on end with it.

Such a text alone is no evidence that somebody has said it: it is not shown before it is final.
"""

import re

from tutti_server.engine.api import is_punctuation

STOCK_PHRASES = frozenset(
    (
        *("thankyou", "thanks", "thankyouverymuch", "thankyousomuch", "thanksforwatching", "thankyouforwatching"),
        *("thankyouverymuchforwatching", "thankyousomuchforwatching"),
        *("illseeyouinthenextvideo", "seeyouinthenextvideo", "illseeyounexttime", "seeyounexttime", "pleasesubscribe"),
        *("bye", "byebye", "goodbye"),
        *("danke", "vielendank", "dankeschön", "tschüss"),
        *("merci", "mercibeaucoup", "aurevoir"),
        *("gracias", "muchasgracias", "adiós"),
        *("grazie", "graziemille", "ciao", "obrigado", "obrigada", "muitoobrigado", "tchau"),
        *("bedankt", "dankuwel", "dankjewel", "doei", "dziękuję", "dziękujębardzo", "tack", "tacksåmycket"),
        *("спасибо", "большоеспасибо", "пока", "дякую", "teşekkürederim", "teşekkürler"),
        *("ありがとうございました", "ありがとうございます", "ご視聴ありがとうございました", "감사합니다", "고맙습니다"),
        *("谢谢", "谢谢大家", "谢谢观看", "谢谢收看", "謝謝", "謝謝大家", "謝謝觀看", "شكرا", "धन्यवाद"),
    )
)
"""The phrases as `spoken` gives them."""
AROUND = ("and", "foryourtime", "foryourattention")
"""What may stand around phrases."""
_PHRASE, _AROUND = ("|".join(sorted(each, key=len, reverse=True)) for each in (STOCK_PHRASES, AROUND))
# Possessive: a text is read in one way, so that none takes long.
_STOCK_TEXT = re.compile(f"(?:{_AROUND})*+(?>{_PHRASE})(?:{_PHRASE}|{_AROUND})*+")
MAX_STOCK_CHARS = 120
"""Longer text is no stock phrase, whatever spaces and punctuation it has."""


def is_stock_phrase(text: str) -> bool:
    """Whether a text is a stock phrase, or several, and nothing else."""
    return len(text) <= MAX_STOCK_CHARS and _STOCK_TEXT.fullmatch(spoken(text)) is not None


def spoken(text: str) -> str:
    """What is spoken of a text: without punctuation, symbols and spaces, and in small letters.

    Nothing is cached: what is redacted must not stay in memory.
    """
    return "".join(each for each in text.casefold() if not is_punctuation(each))
