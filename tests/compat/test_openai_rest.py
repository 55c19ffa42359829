"""OpenAI's own SDKs for Python and JavaScript, and file transcription over HTTP."""

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from tests.compat.conftest import KEY, NPM_TIMEOUT_S, Running
from tests.recordings import AUDIO, TEXTS
from tests.small_model import SMALL_MODEL_NAME

TRAIN = AUDIO / "train.flac"
SEGMENT_FIELDS = {
    "id": int,
    "seek": int,
    "start": float,
    "end": float,
    "text": str,
    "tokens": list,
    "temperature": float,
    "avg_logprob": float,
    "compression_ratio": float,
    "no_speech_prob": float,
}
TRAIN_LINES = re.escape("The next train to the city leaves from\nplatform seven at a quarter past nine.")
CUE = r"(\d\d:\d\d:\d\d)[,.](\d{3}) --> (\d\d:\d\d:\d\d)[,.](\d{3})\n"


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.http}/v1", api_key="any", max_retries=0) as client:
        yield client


def create(client: openai.OpenAI, **options: Any) -> Any:
    return client.audio.transcriptions.create(**{"model": "whisper-1", "file": TRAIN, **options})


def test_a_file_is_transcribed(client: openai.OpenAI) -> None:
    """Every field that the typed models require is there and of its type, as is the request's id."""
    done = client.audio.transcriptions.with_raw_response.create(
        model="whisper-1",
        file=TRAIN,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
        language="en",
        prompt="At the station.",
        temperature=0.0,
    )
    assert done.headers["x-tutti-model"] == SMALL_MODEL_NAME
    assert "x-tutti-ignored" not in done.headers
    answer: Any = done.parse()
    assert answer._request_id == done.headers["x-request-id"]
    assert (answer.text, answer.language, answer.usage.type) == (TEXTS["train"], "english", "duration")
    assert 4.0 < answer.duration < 6.0
    for segment in answer.segments:
        for name, kind in SEGMENT_FIELDS.items():
            assert isinstance(getattr(segment, name), kind), name
    assert "".join(segment.text for segment in answer.segments) == TEXTS["train"]
    assert [word.word for word in answer.words] == TEXTS["train"].split()
    times = [time for word in answer.words for time in (word.start, word.end)]
    assert times == sorted(times) and times[-1] <= answer.duration


def test_a_stream(client: openai.OpenAI) -> None:
    """Deltas, then exactly one last event with all that its typed model has."""
    *deltas, done = list(create(client, file=io.BytesIO(TRAIN.read_bytes()), stream=True, include=["logprobs"]))
    assert {each.type for each in deltas} == {"transcript.text.delta"}
    assert "".join(each.delta for each in deltas) == done.text == TEXTS["train"]
    assert done.type == "transcript.text.done"
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens > 20
    assert "".join(each.token for each in done.logprobs) == done.text


def test_errors_have_their_classes(server: Running, locked_server: Running) -> None:
    """A wrong key is reported also to a client that is still sending a large file."""

    def opened(server: Running, key: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{server.http}/v1", api_key=key, max_retries=0)

    with opened(server, "any") as client, pytest.raises(openai.BadRequestError) as bad:
        create(client, file=b"this is no audio")
    assert (bad.value.code, bad.value.param, bad.value.type) == ("invalid_file", "file", "invalid_request_error")
    assert bad.value.request_id and bad.value.request_id.startswith("req_")
    with opened(locked_server, "wrong") as client:
        with pytest.raises(openai.AuthenticationError) as unknown:
            create(client, file=bytes(20_000_000))
        assert unknown.value.code == "invalid_api_key"
    with opened(locked_server, KEY) as client, pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("openai/whisper-small")
    assert missing.value.code == "model_not_found"


# JavaScript.


@pytest.mark.node
@pytest.mark.timeout(NPM_TIMEOUT_S)
def test_javascript(server: Running, locked_server: Running, node: Callable[..., Any]) -> None:
    """A read stream goes out chunked, with the file first and without a length."""

    def call(**params: Any) -> dict[str, Any]:
        return {"path": str(TRAIN), "params": {"model": "whisper-1", **params}}

    calls = [
        call(),
        call(response_format="verbose_json", timestamp_granularities=["word", "segment"]),
        call(response_format="srt"),
        call(stream=True),
        call(chunking_strategy={"type": "server_vad", "silence_duration_ms": 400}, keywords=["platform"]),
        call(language="xx"),
    ]
    plain, verbose, srt, stream, tuned, refusal = node(
        "transcribe.mjs", baseURL=f"{server.http}/v1", apiKey="any", calls=calls
    )
    assert plain["answer"]["text"] == verbose["answer"]["text"] == tuned["answer"]["text"] == TEXTS["train"]
    assert plain["requestId"].startswith("req_")
    assert set(verbose["answer"]["segments"][0]) == {*SEGMENT_FIELDS, "language"}
    assert [word["word"] for word in verbose["answer"]["words"]] == TEXTS["train"].split()
    assert re.fullmatch(f"1\n{CUE}{TRAIN_LINES}\n\n", srt["answer"])
    *deltas, done = stream["events"]
    assert "".join(each["delta"] for each in deltas) == done["text"] == TEXTS["train"]
    assert refusal["error"]["name"] == "BadRequestError"
    assert (refusal["error"]["status"], refusal["error"]["param"]) == (400, "language")
    (unknown,) = node("transcribe.mjs", baseURL=f"{locked_server.http}/v1", apiKey="wrong", calls=[call()])
    assert (unknown["error"]["name"], unknown["error"]["code"]) == ("AuthenticationError", "invalid_api_key")
    assert unknown["error"]["requestID"].startswith("req_")
