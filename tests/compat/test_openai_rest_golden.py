"""What the SDKs of OpenAI sent once is answered as it was then; `python -m tests.compat.record_openai_rest` records."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compat.conformance import approximated, supported
from tests.compat.http_exchange import Request, read, replay
from tests.compat.record_openai_rest import FOLDER, service
from tutti_server.app.media.decoder_workers import Decoders

REST = "openai-rest"
SHOWS = {
    "json": [
        supported(REST, "file"),
        supported(REST, "language"),
        supported(REST, "response_format=json"),
        approximated(
            REST,
            "model",
            how="with one model any name is accepted; the server's one model answers, and `x-tutti-model` names it",
        ),
    ],
    "verbose": [
        supported(REST, "response_format=verbose_json"),
        supported(REST, "timestamp_granularities[]=segment"),
        supported(REST, "timestamp_granularities[]=word"),
        supported(REST, "temperature"),
    ],
    "srt": [supported(REST, "response_format=srt")],
    "stream": [
        approximated(REST, "stream", how="one delta for each segment; the usage counts 50 audio tokens per second"),
        approximated(
            REST, "include[]=logprobs", how="one entry for each word, with the mean probability of its tokens"
        ),
    ],
    "hints": [
        approximated(
            REST,
            "keywords[]",
            how="the first 64 of at most 47 bytes; `x-tutti-ignored` names the field if some are left out",
        ),
        approximated(
            REST,
            "languages[]",
            how="the language is one of these; "
            "`x-tutti-ignored` names the field where the model does not know all of them",
        ),
        approximated(
            REST,
            "chunking_strategy=server_vad",
            how="`silence_duration_ms` from 100, `prefix_padding_ms` to 1000; `threshold`, in four steps with `webrtc`",
        ),
    ],
    "speakers": [
        supported(REST, "response_format=diarized_json"),
        approximated(REST, "chunking_strategy=auto", how="audio is always cut at pauses; its loudness is not changed"),
    ],
}
"""What of the options a call shows."""
PATHS = sorted(FOLDER.glob("*.json"))


def answered(path: Path) -> Path:
    """The file with the answer to the request of this one: that of the SDK in Python."""
    return path.with_name(path.name.replace("js-", "python-"))


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.stem, marks=SHOWS[path.stem.partition("-")[2]]) for path in PATHS]
)
async def test_exchange(path: Path, decoders: Decoders) -> None:
    """Status, headers and body are those that were recorded; both SDKs are answered alike."""
    request, answer = read(path, answered(path))
    assert await replay(service(decoders), request) == answer


REQUESTS = [read(path, answered(path))[0] for path in PATHS]
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
