"""The limit of open files follows the settings."""

import re
import resource

import pytest

from tutti_server.app.publish.call_subscribers import MAX_SUBSCRIBERS_PER_CALL
from tutti_server.app.server.descriptors import n_needed, reserve_descriptors
from tutti_server.app.service.settings import Settings, own_settings

NEEDED = n_needed(Settings())


@pytest.mark.parametrize(
    ("soft", "hard", "expected", "warns"),
    [
        (64, 10_000, NEEDED, False),
        (64, resource.RLIM_INFINITY, NEEDED, False),
        (64, 128, 128, True),
        (5_000, 10_000, None, False),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, False),
    ],
)
def test_the_limit_is_raised_to_what_the_settings_need(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    soft: int,
    hard: int,
    expected: int | None,
    warns: bool,
) -> None:
    """It is never lowered. A system that does not allow as much is a warning, which names settings that there are."""
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    reserve_descriptors(Settings())
    assert limits == ([] if expected is None else [(expected, hard)])
    assert ("the system allows 128" in caplog.text) == warns
    assert set(re.findall(r"max_\w+", caplog.text)) <= {each.name for each in own_settings()}


def test_more_sessions_need_more() -> None:
    """So do the subscribers of calls, of whom there may be more with them."""
    assert n_needed(Settings(max_sessions=1032)) == NEEDED + 1000 * (1 + MAX_SUBSCRIBERS_PER_CALL)
