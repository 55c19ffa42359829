"""What the HTTP endpoints of several dialects have in common."""

CLIENT_GONE = 499
"""The status in the log for a client that disconnected before its answer. No client receives it."""

IGNORED_HEADER = "x-tutti-ignored"
"""Names the fields of a request that had no effect, so that the server ignores none of them silently."""

WARNINGS_HEADER = "x-tutti-warnings"
"""Says what there is to know of a recording beyond its text, also for formats that have no place for it."""

MAX_HEADER_CHARS = 500
"""The longest value of a header that holds text from a client, in characters."""


def header_value(text: str) -> str:
    """A text as the value of a header: cut to its maximum, with `?` for each character that is not printable ASCII.

    Without spaces around it, with which no answer can be sent.
    """
    text = text[:MAX_HEADER_CHARS].strip(" ")
    return "".join(character if character.isprintable() and character.isascii() else "?" for character in text)
