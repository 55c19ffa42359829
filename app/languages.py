"""The languages that Whisper knows.

Source: openai/whisper, whisper/tokenizer.py.
"""

import re
from collections.abc import Collection, Iterable

NAMES = {
    "en": "english",
    "zh": "chinese",
    "de": "german",
    "es": "spanish",
    "ru": "russian",
    "ko": "korean",
    "fr": "french",
    "ja": "japanese",
    "pt": "portuguese",
    "tr": "turkish",
    "pl": "polish",
    "ca": "catalan",
    "nl": "dutch",
    "ar": "arabic",
    "sv": "swedish",
    "it": "italian",
    "id": "indonesian",
    "hi": "hindi",
    "fi": "finnish",
    "vi": "vietnamese",
    "he": "hebrew",
    "uk": "ukrainian",
    "el": "greek",
    "ms": "malay",
    "cs": "czech",
    "ro": "romanian",
    "da": "danish",
    "hu": "hungarian",
    "ta": "tamil",
    "no": "norwegian",
    "th": "thai",
    "ur": "urdu",
    "hr": "croatian",
    "bg": "bulgarian",
    "lt": "lithuanian",
    "la": "latin",
    "mi": "maori",
    "ml": "malayalam",
    "cy": "welsh",
    "sk": "slovak",
    "te": "telugu",
    "fa": "persian",
    "lv": "latvian",
    "bn": "bengali",
    "sr": "serbian",
    "az": "azerbaijani",
    "sl": "slovenian",
    "kn": "kannada",
    "et": "estonian",
    "mk": "macedonian",
    "br": "breton",
    "eu": "basque",
    "is": "icelandic",
    "hy": "armenian",
    "ne": "nepali",
    "mn": "mongolian",
    "bs": "bosnian",
    "kk": "kazakh",
    "sq": "albanian",
    "sw": "swahili",
    "gl": "galician",
    "mr": "marathi",
    "pa": "punjabi",
    "si": "sinhala",
    "km": "khmer",
    "sn": "shona",
    "yo": "yoruba",
    "so": "somali",
    "af": "afrikaans",
    "oc": "occitan",
    "ka": "georgian",
    "be": "belarusian",
    "tg": "tajik",
    "sd": "sindhi",
    "gu": "gujarati",
    "am": "amharic",
    "yi": "yiddish",
    "lo": "lao",
    "uz": "uzbek",
    "fo": "faroese",
    "ht": "haitian creole",
    "ps": "pashto",
    "tk": "turkmen",
    "nn": "nynorsk",
    "mt": "maltese",
    "sa": "sanskrit",
    "lb": "luxembourgish",
    "my": "myanmar",
    "bo": "tibetan",
    "tl": "tagalog",
    "mg": "malagasy",
    "as": "assamese",
    "tt": "tatar",
    "haw": "hawaiian",
    "ln": "lingala",
    "ha": "hausa",
    "ba": "bashkir",
    "jw": "javanese",
    "su": "sundanese",
    "yue": "cantonese",
}
"""The English name of each language code, as OpenAI's API spells it."""

WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Codes of languages that write no spaces between words. Their translations are joined without a space."""
_THEIRS = "\u0e00-\u0eff\u1000-\u109f\u2e80-\u31ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff9f\U00020000-\U0003ffff"
"""The characters of these languages."""
_THEIR = re.compile(f"[{_THEIRS}]")
_UNIT = re.compile(f"[{_THEIRS}]|[^\\s{_THEIRS}]+")

LOCK = "lock"
"""The value of an option `language` that lets the server detect the language once, and keep it."""

ISO_639_2 = {
    **{"afr": "af", "alb": "sq", "sqi": "sq", "amh": "am", "ara": "ar", "arm": "hy", "hye": "hy", "asm": "as"},
    **{"aze": "az", "bak": "ba", "baq": "eu", "eus": "eu", "bel": "be", "ben": "bn", "bos": "bs", "bre": "br"},
    **{"bul": "bg", "bur": "my", "mya": "my", "cat": "ca", "chi": "zh", "zho": "zh", "cmn": "zh", "cze": "cs"},
    **{"ces": "cs", "dan": "da", "dut": "nl", "nld": "nl", "eng": "en", "est": "et", "fao": "fo", "fin": "fi"},
    **{"fre": "fr", "fra": "fr", "geo": "ka", "kat": "ka", "ger": "de", "deu": "de", "glg": "gl", "gre": "el"},
    **{"ell": "el", "guj": "gu", "hat": "ht", "hau": "ha", "heb": "he", "hin": "hi", "hrv": "hr", "hun": "hu"},
    **{"ice": "is", "isl": "is", "ind": "id", "ita": "it", "jav": "jw", "jpn": "ja", "kan": "kn", "kaz": "kk"},
    **{"khm": "km", "kor": "ko", "lao": "lo", "lat": "la", "lav": "lv", "lin": "ln", "lit": "lt", "ltz": "lb"},
    **{"mac": "mk", "mkd": "mk", "mal": "ml", "mao": "mi", "mri": "mi", "mar": "mr", "may": "ms", "msa": "ms"},
    **{"mlg": "mg", "mlt": "mt", "mon": "mn", "nep": "ne", "nno": "nn", "nor": "no", "nob": "no", "oci": "oc"},
    **{"pan": "pa", "per": "fa", "fas": "fa", "pol": "pl", "por": "pt", "pus": "ps", "rum": "ro", "ron": "ro"},
    **{"rus": "ru", "san": "sa", "sin": "si", "slo": "sk", "slk": "sk", "slv": "sl", "sna": "sn", "snd": "sd"},
    **{"som": "so", "spa": "es", "srp": "sr", "sun": "su", "swa": "sw", "swe": "sv", "tam": "ta", "tat": "tt"},
    **{"tel": "te", "tgk": "tg", "tgl": "tl", "fil": "tl", "tha": "th", "tib": "bo", "bod": "bo", "tuk": "tk"},
    **{"tur": "tr", "ukr": "uk", "urd": "ur", "uzb": "uz", "vie": "vi", "wel": "cy", "cym": "cy", "yid": "yi"},
    **{"yor": "yo"},
}
"""The code of each language by its codes of three letters, as containers name the languages of tracks."""
OLD_CODES = {"iw": "he", "in": "id", "ji": "yi", "jv": "jw", "mo": "ro", "nb": "no", "sh": "sr", "fil": "tl"}
"""Codes that were replaced, or that Whisper has under another one."""
DETECTED = frozenset(
    ("", "auto", "automatic", "autodetect", "multi", "detect", "null", "none", "undefined", "und", "mul")
)
"""What clients send, in lower case, for a language that is to be detected."""
OTHER_NAMES = {
    **{"burmese": "my", "valencian": "ca", "flemish": "nl", "haitian": "ht", "letzeburgesch": "lb", "pushto": "ps"},
    **{"panjabi": "pa", "moldavian": "ro", "moldovan": "ro", "sinhalese": "si", "castilian": "es", "mandarin": "zh"},
    **{"farsi": "fa", "filipino": "tl", "bokmål": "no", "bokmal": "no", "norwegian bokmål": "no"},
    **{"norwegian bokmal": "no", "norwegian nynorsk": "nn"},
}
"""The code of each language by its other English names: those of openai/whisper, and what clients call languages."""
CODES = {name: code for code, name in NAMES.items()} | OTHER_NAMES
"""The code of each language's English names."""


def code_of(text: str) -> str:
    """The code of a language in any usual spelling: `en` for `English (US)`, `EN`, `en-US`, `en_us.UTF-8` and `eng`.

    A text that is no known language comes back in lower case, without its region.
    """
    # A locale may end with its character set, or with a variant. Nothing becomes empty, which means the detector.
    text = re.split(r"(?<=\w)[.@]", text.lower())[0].strip().replace("_", "-")
    name = text.partition("(")[0].strip()
    if name in CODES:
        return CODES[name]
    if "," in text or ";" in text:
        return text
    if text.startswith("zh-") and not {"hk", "yue"}.isdisjoint(text.split("-")):
        return "yue"
    code = text.partition("-")[0].strip()
    return OLD_CODES.get(code) or ISO_639_2.get(code, code) or text


def language_of(text: str | None, known: Collection[str] = NAMES) -> str | None:
    """The code of the language that a client names in any usual spelling; `None` where it leaves it to the detector.

    A model that knows no Cantonese takes it for Chinese.
    """
    if text is None or text.strip().lower() in DETECTED:
        return None
    code = code_of(text)
    return "zh" if code == "yue" and "yue" not in known and "zh" in known else code


def known_among(texts: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """The codes of a client's list of languages that a model knows, each once."""
    return tuple(dict.fromkeys(code for text in texts if (code := language_of(text, known)) and code in known))


def units(text: str) -> list[str]:
    """The words of a text, and each character of a script without spaces, in order."""
    return _UNIT.findall(text)


def joined(texts: Iterable[str]) -> str:
    """Texts that follow each other, with what stands between them."""
    made = ""
    for text in texts:
        made += joint(made, text) + text if made else text
    return made


def joint(before: str, after: str) -> str:
    """What stands between two texts: nothing beside a character of a script without spaces, else a space.

    The language does not tell: Japanese speech may be translated into English, and has names in Latin letters.
    """
    beside = before[-1:] + after[:1]
    return " " if beside.isascii() or not _THEIR.search(beside) else ""
