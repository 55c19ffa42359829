"""Texts from clients in headers of answers."""

from tutti_server.app.dialects.http_answers import MAX_HEADER_CHARS, header_value


def test_a_header_holds_printable_ascii_only() -> None:
    assert header_value("a b\r\nc: \u00e9") == "a b??c: ?"


def test_a_long_text_is_cut() -> None:
    assert header_value("x" * (MAX_HEADER_CHARS + 1)) == "x" * MAX_HEADER_CHARS


def test_a_header_neither_begins_nor_ends_with_a_space() -> None:
    """No answer could be sent with it: also not where a text is cut behind a word."""
    assert header_value(" a b ") == "a b"
    assert header_value("x" * (MAX_HEADER_CHARS - 1) + " y") == "x" * (MAX_HEADER_CHARS - 1)
