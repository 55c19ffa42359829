"""Deepgram's parameters for the text itself: redaction, numerals, profanity, replacements.

Source: Deepgram's pages "Redaction", "Numerals", "Profanity Filtering" and "Find and Replace".
"""

from tutti_server.app.dialects.checks import BOOLEANS
from tutti_server.app.dialects.deepgram.query import Query
from tutti_server.app.dialects.text_rules import MAX_PHRASES, is_phrase
from tutti_server.app.errors import BadStart
from tutti_server.app.text_rules.pipeline import Profanity, TextRuleOptions
from tutti_server.app.text_rules.redaction import Kind

REDACTED: dict[str, Kind] = {
    "pci": "card",
    "credit_card": "card",
    "credit_card_expiration": "card",
    "cvv": "card",
    "ssn": "ssn",
    "account_number": "account",
    "bank_account": "account",
    "phone_number": "phone",
    "email_address": "email",
    "numbers": "number",
    "true": "number",
    "aggressive_numbers": "number",
}
"""What is redacted for the values of `redact`; others are refused, so that no client stores what it trusts is gone."""
ENGLISH = "en"


def text_rules(values: Query, language: str | None) -> TextRuleOptions:
    """The rules in the parameters of a URL; numerals and profanity have an effect on English only.

    Args:
        language: the language of all text; `None` if it is not known.

    Raises:
        BadStart: a value is wrong, or asks for what is not redacted here.
    """
    is_english = language == ENGLISH
    profanity: Profanity | None = "mask" if is_english and values.boolean("profanity_filter") else None
    return TextRuleOptions(
        numerals=is_english and values.boolean("numerals"),
        redact=_redact(values),
        replace=_replace(values),
        profanity=profanity,
    )


def _redact(values: Query) -> tuple[Kind, ...]:
    """The kinds in all values of `redact`, each of which may be a list with commas."""
    kinds: list[Kind] = []
    for value in values.texts("redact"):
        for each in value.lower().split(","):
            if each.strip() in REDACTED:
                kinds.append(REDACTED[each.strip()])
            elif BOOLEANS.get(each.strip(), True):
                raise BadStart("redact", f"one of {', '.join(REDACTED)}, as nothing else is redacted here", value)
    return tuple(dict.fromkeys(kinds))


def _replace(values: Query) -> tuple[tuple[str, str], ...]:
    """The replacements `words:others`; nothing after the colon leaves the words out."""
    wanted = values.texts("replace")
    pairs = tuple((words, others) for words, _, others in (each.partition(":") for each in wanted))
    if len(pairs) > MAX_PHRASES or not all(is_phrase(words) for words, _ in pairs):
        expected = f"at most {MAX_PHRASES} of the form WORDS:OTHERS, with a word before the colon"
        raise BadStart("replace", expected, wanted[0] if len(pairs) <= MAX_PHRASES else len(pairs))
    return pairs
