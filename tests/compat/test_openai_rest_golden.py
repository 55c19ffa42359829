"""What the SDKs of OpenAI sent once is answered as it was then; `python -m tests.compat.record_openai_rest` records."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compat.http_exchange import Request, read, replay
from tests.compat.record_openai_rest import CALLS, FOLDER, service
from tutti_server.app.media.decoders import Decoders


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
async def test_exchange(path: Path, decoders: Decoders) -> None:
    """Status, headers and body are those that were recorded."""
    request, answer = read(path)
    assert await replay(service(decoders), request) == answer


def test_every_call_was_recorded_with_both_sdks() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {
        f"{sdk}-{name}" for sdk in ("python", "js") for name in CALLS
    }


def test_both_sdks_are_answered_alike() -> None:
    """However differently they spell a form."""
    for name in CALLS:
        assert read(FOLDER / f"python-{name}.json")[1] == read(FOLDER / f"js-{name}.json")[1]


REQUESTS = [read(path)[0] for path in sorted(FOLDER.glob("*.json"))]
damage = st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 20), st.binary(max_size=4)), min_size=1, max_size=8)


@given(request=st.sampled_from(REQUESTS), wrong=damage, n_piece=st.integers(1, 4000))
def test_whatever_is_wrong_with_a_form_is_the_clients_fault(
    decoders: Decoders, request: Request, wrong: list[tuple[int, int, bytes]], n_piece: int
) -> None:
    """A damaged form is refused or, where the damage does not matter, transcribed; it is never an error of ours."""
    body = b"".join(request.body)
    for at, n_lost, added in wrong:
        body = body[:at] + added + body[at + n_lost :]
    pieces = [body[at : at + n_piece] for at in range(0, len(body), n_piece)]
    headers = {name: value for name, value in request.headers.items() if name != "content-length"}
    answer = asyncio.run(replay(service(decoders), replace(request, headers=headers, body=pieces)))
    assert answer.status in (200, 400)
    assert answer.status == 200 or answer.body["error"]["message"]
