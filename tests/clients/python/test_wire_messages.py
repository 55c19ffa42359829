"""What is made of the classes of messages for others is up to date."""

from tests.wire_messages import PAGE, TYPESCRIPT, page, typescript


def test_the_types_of_javascript_and_the_page_tell_of_the_messages_as_they_are() -> None:
    """`python -m tests.wire_messages` writes both anew."""
    assert TYPESCRIPT.read_text() == typescript()
    assert PAGE.read_text() == page()
