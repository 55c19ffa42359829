"""How a page is asked for, with a stand-in for Chromium."""

import asyncio
from typing import Any

import pytest

from tests.browser import chromium


class SilentAtFirst:
    """Does not answer the first commands."""

    def __init__(self, n_silent: int) -> None:
        self.n_silent = n_silent
        self.methods: list[str] = []

    def expect_event(self, _method: str, _session_id: str) -> asyncio.Future[None]:
        event: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        event.set_result(None)
        return event

    async def command(self, method: str, _session_id: str, timeout_s: float, **_params: object) -> dict[str, Any]:
        self.methods.append(method)
        if len(self.methods) <= self.n_silent:
            async with asyncio.timeout(timeout_s):
                await asyncio.Event().wait()
        return {}


async def test_a_page_is_asked_for_at_most_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never answers still fails the test."""
    monkeypatch.setattr(chromium, "NAVIGATION_TIMEOUT_S", 0.01)
    monkeypatch.setattr(chromium, "COMMAND_TIMEOUT_S", 0.02)
    for n_silent, n_asked in ((0, 1), (1, 2)):
        devtools = SilentAtFirst(n_silent)
        await chromium.Page(devtools, "tab").open("about:blank")  # type: ignore[arg-type]  # it has what a load calls
        assert devtools.methods == ["Page.navigate"] * n_asked
    devtools = SilentAtFirst(2)
    with pytest.raises(TimeoutError):
        await chromium.Page(devtools, "tab").open("about:blank")  # type: ignore[arg-type]  # as above
    assert devtools.methods == ["Page.navigate"] * 2
