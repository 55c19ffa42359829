"""Keys of a file are known in memory, and their changes soon after they were written."""

import asyncio
import logging
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.conftest import Serve
from tests.fakes import FakeTranscriber
from tutti_server.app.errors import SettingsError
from tutti_server.app.server.main import build_app
from tutti_server.app.service.api_keys import ApiKey
from tutti_server.app.service.file_keys import FileKeys
from tutti_server.app.service.settings import Settings

ACME = '[acme]\nkey = "a"\n'
ZETA = '[zeta]\nkey = "z"\nsessions = 1\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    path.write_text(ACME)
    return path


def replace_with(path: Path, text: str | None) -> None:
    """As editors do, so that no reader finds half of it; `None` takes the file away."""
    if text is None:
        path.unlink()
        return
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


async def test_a_change_is_known_after_an_unexpected_failure(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The same change, without another one."""
    monkeypatch.setattr("tutti_server.app.service.followed_files.POLL_S", 0.01)
    is_wrong = True

    def check(found: Sequence[ApiKey]) -> None:
        if is_wrong and len(found) > 1:
            raise ZeroDivisionError("an unexpected error")

    keys = FileKeys(file, check)
    async with keys.running():
        replace_with(file, ACME + ZETA)
        while "an unexpected error" not in caplog.text:
            await asyncio.to_thread(lambda: None)
        assert list(keys.by_key) == ["a"]
        is_wrong = False
        while "z" not in keys.by_key:
            await asyncio.to_thread(lambda: None)


@pytest.mark.parametrize("text", [None, "[acme", '[acme]\nkey = "a"\nsessions = -1\n', "", ZETA])
async def test_a_file_that_cannot_be_used_leaves_the_keys_as_they_were(
    file: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It is gone, is no TOML, has a wrong limit or no key, or the service cannot count what it limits. Said once."""

    def check(found: Sequence[ApiKey]) -> None:
        if any(each.has_limits for each in found):
            raise SettingsError("keys_file: expected redis_url with it")

    keys = FileKeys(file, check)
    replace_with(file, text)
    with caplog.at_level(logging.ERROR):
        await keys.refresh()
        await keys.refresh()
    assert list(keys.by_key) == ["a"]
    assert [each.getMessage() for each in caplog.records] == [caplog.messages[0]]
    assert "the keys stay as they were: keys_file: " in caplog.messages[0]
    replace_with(file, ACME.replace('"a"', '"b"'))
    await keys.refresh()
    assert list(keys.by_key) == ["b"]


async def test_a_server_goes_on_without_its_file_and_follows_its_changes(serve: Serve, file: Path) -> None:
    server = await serve(keys_file=str(file))

    async def status(key: str) -> int:
        headers = {"authorization": f"Bearer {key}"}
        return (await server.get("/v1/models", headers=headers)).status_code

    assert (await status("a"), await status("z")) == (200, 401)
    replace_with(file, None)
    await server.service.file_keys.refresh()
    assert await status("a") == 200
    assert [each.name for each in server.service.file_keys.keys] == ["acme"]
    replace_with(file, ZETA)
    await server.service.file_keys.refresh()
    assert (await status("a"), await status("z")) == (401, 200)


def test_a_gateway_that_starts_again_without_the_file_has_the_keys_of_the_start(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """So has an engine. The settings went to it before the file was deleted."""
    settings = Settings(keys_file=str(file), host="0.0.0.0")
    replace_with(file, None)
    arrived = replace(pickle.loads(pickle.dumps(settings)), threads=2)
    assert [each.key for each in arrived.named_keys] == ["a"]
    app = build_app(arrived, FakeTranscriber())
    assert list(app.state.service.file_keys.by_key) == ["a"]
    assert "the keys are those of the start: keys_file: expected a TOML file" in caplog.text
