"""Word errors for spoken-style texts: the normaliser of the Whisper paper, with spelled codes joined."""

import re

from benchmarks import scoring

AMERICAN = {
    "centre": "center",
    "cheque": "check",
    "colour": "color",
    "favourite": "favorite",
    "grey": "gray",
    "harbour": "harbor",
    "honour": "honor",
    "humour": "humor",
    "kilometre": "kilometer",
    "kilometres": "kilometers",
    "labour": "labor",
    "metre": "meter",
    "metres": "meters",
    "neighbour": "neighbor",
    "neighbours": "neighbors",
    "organise": "organize",
    "organised": "organized",
    "programme": "program",
    "realise": "realize",
    "realised": "realized",
    "recognise": "recognize",
    "theatre": "theater",
    "travelled": "traveled",
    "traveller": "traveler",
    "travelling": "traveling",
}
"""American spellings by British spelling, for words of everyday English. The table of the paper has 1,700."""

_PARENTHESIS = re.compile(r"[()]")
_CLOCK = re.compile(r"\b(\d{1,2}):(\d\d)\b")
_MINUS = re.compile(r"(?<![\w.,])[-\u2212](?=\d)")
_DIGIT_GROUPS = re.compile(r"(?<![\d$.,])\d{2,4}(?:[-. ]\d{2,4}){1,4}(?![\d.,]*\d)")
_DIGITS = re.compile(r"(?<![\d$.,-])\d(?:(?:[,.]? \d)+|(?:-\d){2,})(?![\d.,:-]*\d)")
_AT = re.compile(r"(?<=[A-Za-z\d])@(?=[A-Za-z\d])")
_DOT = re.compile(r"(?<=[A-Za-z\d])\.(?=[A-Za-z]{2,})")
_CODE = re.compile(r"\b(?=[A-Za-z\d]*[A-Za-z])(?=[A-Za-z\d]*\d)[A-Za-z\d]{2,12}\b")
_HALF_DAY = re.compile(r"(\d) ([ap]) m\b")
_LETTER_OR_NUMBER = re.compile(r"[a-z]|\d+")
_MIXED = re.compile(r"(?=.*\d)(?=.*[a-z])(?!\d+(?:st|nd|rd|th|s)$)[a-z\d]{2,8}")
PHONE_DIGITS = 7
"""Groups of digits with at least this many digits in total are one telephone number."""


def normalise(text: str, language: str = "en") -> list[str]:
    """The words of a text as they are compared.

    Words in parentheses count: a speaker says them, though the normaliser of the Whisper paper drops them. Digits in a
    row are one number, as that normaliser has them where they are written as words.
    English: clock times, telephone numbers, addresses and codes are written as they are spoken, then the normaliser of
    the Whisper paper is applied, then single letters and digits in a row are joined ("x r 7" to "xr7"). Other
    languages: lower case without punctuation. Apart from these two, scores differ from those of the package
    whisper-normalizer only where a text holds a British spelling that `AMERICAN` lacks.
    """
    text = _PARENTHESIS.sub(" ", text.replace("\u2019", "'").replace("\u2018", "'"))
    if language != "en":
        return scoring.normalise(text, language)
    words = [AMERICAN.get(word, word) for word in scoring.normalise(_as_spoken(text))]
    return _joined(_HALF_DAY.sub(r"\1 \2m", " ".join(words)).split())


def _as_spoken(text: str) -> str:
    text = _MINUS.sub("minus ", _CLOCK.sub(r"\1\2", text))
    text = _DIGITS.sub(lambda run: re.sub(r"\D", "", run[0]), _DIGIT_GROUPS.sub(_phone, text))
    return _CODE.sub(_spelled, _DOT.sub(" dot ", _AT.sub(" at ", text)))


def _phone(match: re.Match[str]) -> str:
    digits = re.sub(r"\D", "", match[0])
    return digits if len(digits) >= PHONE_DIGITS else match[0]


def _spelled(match: re.Match[str]) -> str:
    """A code with its letters apart and its digits in groups. Ordinals and similar words stay as they are."""
    parts = re.findall(r"[A-Za-z]+|\d+", match[0])
    if len(parts) == 2 and not match[0].isupper():
        return match[0]
    return " ".join(part if part.isdigit() else " ".join(part) for part in parts)


def _joined(words: list[str]) -> list[str]:
    out: list[str] = []
    run: list[str] = []
    for word in [*words, ""]:
        if word and (_LETTER_OR_NUMBER.fullmatch(word) or _MIXED.fullmatch(word)):
            run.append(word)
            continue
        letters = [each for each in run if each.isalpha()]
        # "a" or "i" beside a number is a word.
        is_code = len(run) > 1 and (len(letters) > 1 or any(each not in ("a", "i") for each in letters))
        out += ["".join(run)] if is_code else run
        run = []
        out += [word] if word else []
    return out
