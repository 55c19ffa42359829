"""E-mail addresses in a text, written ("ann@example.com") or spoken ("ann dot lee at example dot com").

No pattern here looks at a word more than a few times, as a model that repeats itself may write "a-a-a-a" for a whole
window.
"""

import re
from collections.abc import Iterator, Sequence

from tutti_server.app.text_rules.edits import TOKEN

_WRITTEN = re.compile(r"(?<![\w.+%-])[\w.+%-]+\s?@\s?[\w-]+(?:\.[\w-]+)*")
_DOMAINS = "com|org|net|edu|gov|mil|info|biz|io|co|ai|app|dev|me|tv|uk|us|de|fr|es|it|nl|eu|ca|au|nz|in|ch|at|be|se|pl"
"""What the name after a written dot must be, as a full stop without a space looks the same."""
_JOINING = frozenset("dot underscore dash hyphen minus plus point".split())
"""Words between the names of an address."""
_JOIN = rf"(?:\s+(?:{'|'.join(sorted(_JOINING))})\s+|[._+-])"
_NAME = r"[^\W_]+"
_AT_DOMAIN = re.compile(
    rf"\bat(?:\s+(?:sign|symbol))?\s+{_NAME}(?:{_JOIN}{_NAME})*?(?:\s+dot\s+{_NAME}|{_JOIN}(?:{_DOMAINS})\b)"
    rf"(?:{_JOIN}(?:{_DOMAINS})\b)*",
    re.IGNORECASE,
)
_AT_SIGN = frozenset({"sign", "symbol"})


def addresses(text: str) -> Iterator[tuple[int, int]]:
    """Find addresses, and return where each begins and ends. A spoken one may be inside a written one."""
    for match in _WRITTEN.finditer(text):
        yield match.span()
    tokens: list[re.Match[str]] | None = None
    for match in _AT_DOMAIN.finditer(text):
        tokens = tokens or list(TOKEN.finditer(text))
        at = next(index for index, each in enumerate(tokens) if each.end() > match.start())
        if at:
            yield tokens[_first_of_name(text, tokens, at - 1)].start(), match.end()


def start_of_partial_address(text: str) -> int:
    """The index of the end of a text that more text could make an address, or a longer one."""
    tokens = list(TOKEN.finditer(text))
    if not tokens:
        return 0
    sign = text.rfind("@")
    first = len(tokens) - 1
    if sign < 0 or any(each.isspace() for each in text[sign + 1 :].strip()):
        first = _first_of_name(text, tokens, first)
        # A domain may begin with a joining word: "ann at dash dot com".
        at = first if tokens[first][0].lower() == "at" else _at_before(tokens, first)
        if at is None and (at := _at_before(tokens, len(tokens))) is None:
            return tokens[first].start()
        return tokens[_first_of_name(text, tokens, at - 1) if at else 0].start()
    before = text[:sign].rstrip()
    return max(before.rfind(" "), before.rfind("\n")) + 1


def _at_before(tokens: Sequence[re.Match[str]], index: int) -> int | None:
    """The index of the word "at" before a word, perhaps with the word "sign" after it; `None` if it is not there."""
    if index > 1 and tokens[index - 1][0].lower() in _AT_SIGN:
        index -= 1
    return index - 1 if index and tokens[index - 1][0].lower() == "at" else None


def _first_of_name(text: str, tokens: Sequence[re.Match[str]], last: int) -> int:
    """The index of the first of the words that belong together, of which the last has this index."""
    first = last
    while first:
        before, word = tokens[first - 1], tokens[first]
        between = text[before.end() : word.start()]
        is_joined = between.isspace() and (before[0].lower() in _JOINING or word[0].lower() in _JOINING)
        is_spelt = len(before[0]) == len(word[0]) == 1 and len(between) <= 2
        if not is_joined and not is_spelt and between not in ("", ".", "_", "+", "-"):
            break
        first -= 1
    return first
