"""Languages in every spelling that clients use."""

import pytest

from tutti_server.app.languages import ISO_639_2, NAMES, OLD_CODES, known_among, language_of


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((each, "en") for each in ("en", "EN", "English", "english", " en ", "en-US", "en_us", "en-Latn-GB", "eng")),
        *((each, "de") for each in ("de_DE.UTF-8", "de_AT@euro", "German")),
        *(("Castilian", "es"), ("Mandarin", "zh"), ("Flemish", "nl"), ("Farsi", "fa"), ("mo", "ro"), ("sh", "sr")),
        *(("English (US)", "en"), ("chinese (Traditional)", "zh"), ("Portuguese(Brazil)", "pt"), ("(US)", "(us)")),
        *((each, "zh") for each in ("zh", "zh-CN", "zh_TW", "zh-Hans", "zh-hant", "Chinese", "zho", "chi")),
        *((each, "yue") for each in ("yue", "zh-HK", "zh_hk", "Cantonese", "yue-HK", "zh-Hant-HK", "zh-yue-HK")),
        *((each, "he") for each in ("iw", "he-IL", "Hebrew", "iw_IL")),
        *((each, "no") for each in ("nb-NO", "Bokmål", "Norwegian Bokmål", "Norwegian Bokmal")),
        *(("in", "id"), ("fil-PH", "tl"), ("pt-BR", "pt"), ("haitian creole", "ht"), ("jv", "jw")),
        *((each, None) for each in (None, "", " ", "auto", "Auto", "multi", "detect", "und", "undefined", "Automatic")),
        *(
            ("xx", "xx"),
            ("Klingon", "klingon"),
            ("en-US,fr-FR", "en-us,fr-fr"),
            ("en-us;q=0.9", "en-us;q=0"),
            (".UTF-8", ".utf"),
            ("@euro", "@euro"),
            ("-US", "-us"),
            ("_", "-"),
        ),
    ],
)
def test_a_language_is_understood(text: str | None, code: str | None) -> None:
    """A text that is no language stays one that no model knows."""
    assert language_of(text) == code


def test_cantonese_is_chinese_to_a_model_without_it() -> None:
    assert language_of("zh-HK", ["en", "zh"]) == "zh"
    assert language_of("zh-HK", ["en"]) == "yue"


def test_a_list_has_each_language_once() -> None:
    assert known_among(["en-US", "English", "auto", "xx", "iw"], ["he", "en"]) == ("en", "he")


def test_other_codes_stand_for_languages_of_whisper() -> None:
    """And none hides a code of Whisper's own."""
    assert set(ISO_639_2.values()) | set(OLD_CODES.values()) <= set(NAMES)
    assert not set(NAMES) & (set(ISO_639_2) | set(OLD_CODES))
