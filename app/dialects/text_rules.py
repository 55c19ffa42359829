"""Text rules as clients of several dialects write them: an object in JSON."""

from collections.abc import Callable
from typing import Any

from tutti import messages
from tutti_server.app.dialects.checks import Check, are_texts, is_boolean, understood
from tutti_server.app.text_rules.pipeline import TextRuleOptions
from tutti_server.app.text_rules.redaction import KINDS

MAX_PHRASES, MAX_PHRASE_CHARS = messages.MAX_PHRASES, messages.MAX_PHRASE_CHARS

MakeError = Callable[[str, str, object], Exception]
"""Makes the error for a field, from its name, what was expected and what came."""


def parse_text_rules(fields: dict[str, Any], error: MakeError) -> TextRuleOptions:
    """The text rules of an object. A key that is not known is wrong: what it asks for would not be done.

    Raises:
        Exception: that of `error`, for a value that is wrong.
    """

    def pop(name: str, expected: str, is_valid: Check, default: Any) -> Any:
        value = understood(fields.pop(name, default), is_valid)
        if value == "":
            return default
        if not is_valid(value):
            raise error(f"text_rules.{name}", expected, value)
        return value

    fields = dict(fields)
    phrases = f"at most {MAX_PHRASES} texts of 1 to {MAX_PHRASE_CHARS} characters, each with a word"
    rules = TextRuleOptions(
        numerals=pop("numerals", "true or false", is_boolean, False),
        redact=tuple(dict.fromkeys(pop("redact", f"a list of {', '.join(KINDS)}", _are_kinds, []))),
        redact_names=tuple(pop("redact_names", f"a list of {phrases}", are_phrases, [])),
        replace=tuple(pop("replace", f"an object of {phrases}, and the texts instead", _are_replaced, {}).items()),
        profanity=pop("profanity", "mask or null", lambda value: value in ("mask", None), None),
    )
    for name, value in fields.items():
        known = "numerals, redact, redact_names, replace and profanity"
        raise error(f"text_rules.{name[:MAX_PHRASE_CHARS]}", f"none, as the keys are {known}", value)
    return rules


def are_phrases(value: object) -> bool:
    """Whether a value is a list of words and phrases that can be looked for."""
    return are_texts(value) and isinstance(value, list) and len(value) <= MAX_PHRASES and all(map(is_phrase, value))


def is_phrase(value: str) -> bool:
    """Whether a text can be looked for."""
    return len(value) <= MAX_PHRASE_CHARS and any(each.isalnum() for each in value)


def _are_kinds(value: object) -> bool:
    return are_texts(value) and isinstance(value, list) and all(each in KINDS for each in value)


def _are_replaced(value: object) -> bool:
    return (
        isinstance(value, dict)
        and are_phrases(list(value))
        and all(isinstance(each, str) and len(each) <= MAX_PHRASE_CHARS for each in value.values())
    )
