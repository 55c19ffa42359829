"""What the SDKs of OpenAI sent once is answered as it was then; `python -m tests.compat.record_openai_rest` records."""

from pathlib import Path

import pytest

from tests.compat.http_exchange import read, replay
from tests.compat.record_openai_rest import CALLS, FOLDER, service


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
async def test_exchange(path: Path) -> None:
    """Status, headers and body are those that were recorded."""
    request, answer = read(path)
    assert await replay(service(), request) == answer


def test_every_call_was_recorded_with_both_sdks() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {
        f"{sdk}-{name}" for sdk in ("python", "js") for name in CALLS
    }


def test_both_sdks_are_answered_alike() -> None:
    """However differently they spell a form."""
    for name in CALLS:
        assert read(FOLDER / f"python-{name}.json")[1] == read(FOLDER / f"js-{name}.json")[1]
