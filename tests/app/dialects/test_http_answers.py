"""Texts from clients in headers of answers."""

from tutti_server.app.dialects.http_answers import MAX_HEADER_CHARS, header_value


def test_a_header_holds_some_printable_ascii_without_spaces_around_it() -> None:
    """No answer could be sent with such a space: also not where a text is cut behind a word."""
    assert header_value(" a b\r\nc: \u00e9 ") == "a b??c: ?"
    assert header_value("x" * (MAX_HEADER_CHARS + 1)) == "x" * MAX_HEADER_CHARS
    assert header_value("x" * (MAX_HEADER_CHARS - 1) + " y") == "x" * (MAX_HEADER_CHARS - 1)
