"""What the operator redacts."""

import pytest

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.settings import Settings


def test_kinds_are_listed_with_commas() -> None:
    assert Settings(redact="email, Card").session_config.redact == ("card", "email")
    assert Settings().session_config.redact == ()


def test_an_unknown_kind_is_refused_at_the_start() -> None:
    with pytest.raises(SettingsError, match=r"redact: expected some of card, .*, got 'names'"):
        Settings(redact="card,names")
