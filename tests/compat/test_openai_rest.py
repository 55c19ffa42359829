"""OpenAI's own SDKs for Python and JavaScript, and file transcription over HTTP."""

import asyncio
import base64
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from tests.app.dialects.openai.test_files_endpoint import wav
from tests.app.media.test_file_decoder import encode
from tests.compat.agents import run_agent
from tests.compat.conformance import approximated, refused, supported
from tests.compat.conftest import KEY, NPM_TIMEOUT_S, Running
from tests.fakes import MODEL, FakeTranscriber
from tests.recordings import AUDIO, TEXTS, read, words
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


# What is transcribed.


@supported("openai-rest", "file")
@approximated(
    "openai-rest",
    "model",
    how="with one model any name is accepted; the server's one model answers, and `x-tutti-model` names it",
)
@supported("openai-rest", "response_format=json")
def test_a_file_is_transcribed(client: openai.OpenAI) -> None:
    """With every field of the typed model, and the request's id."""
    done = client.audio.transcriptions.with_raw_response.create(model="gpt-4o-transcribe", file=TRAIN)
    assert done.headers["x-tutti-model"] == SMALL_MODEL_NAME
    assert "x-tutti-ignored" not in done.headers
    answer = done.parse()
    assert answer.text == TEXTS["train"]
    assert (answer.usage.type, answer.usage.seconds) == ("duration", 5)
    assert [each.code for each in answer.languages] == ["en"]
    assert answer._request_id == done.headers["x-request-id"]


@pytest.mark.parametrize("shape", ["open file", "bytes", "stream", "named", "typed"])
@supported("openai-rest", "file")
def test_every_way_to_give_a_file(client: openai.OpenAI, shape: str) -> None:
    """Names and types are not believed: what it is, its bytes say."""
    content = TRAIN.read_bytes()
    with TRAIN.open("rb") as opened:
        given = {
            "open file": opened,
            "bytes": content,
            "stream": io.BytesIO(content),
            "named": ("speech.mp3", content),
            "typed": ("speech", content, "video/mp4"),
        }
        assert create(client, file=given[shape]).text == TEXTS["train"]


@supported("openai-rest", "file")
@pytest.mark.parametrize(("container", "codec"), [("mp3", "libmp3lame"), ("webm", "libopus"), ("mp4", "aac")])
def test_containers(client: openai.OpenAI, container: str, codec: str) -> None:
    """As browsers and telephones record."""
    content = encode(container, codec, 48_000, read("train").astype(np.float32) / 32768)
    assert words(create(client, file=content).text)[-3:] == ["quarter", "past", "nine"]


@supported("openai-rest", "response_format=text")
def test_text(client: openai.OpenAI) -> None:
    assert create(client, response_format="text") == TEXTS["train"] + "\n"


@supported("openai-rest", "response_format=srt")
@supported("openai-rest", "response_format=vtt")
@pytest.mark.parametrize(("response_format", "head"), [("srt", "1\n"), ("vtt", "WEBVTT\n\n")])
def test_subtitles(client: openai.OpenAI, response_format: str, head: str) -> None:
    answer = create(client, response_format=response_format)
    assert re.fullmatch(f"{head}{CUE}{TRAIN_LINES}\n\n", answer)


@supported("openai-rest", "response_format=verbose_json")
@supported("openai-rest", "timestamp_granularities[]=segment")
@supported("openai-rest", "timestamp_granularities[]=word")
def test_verbose_json(client: openai.OpenAI) -> None:
    """Every field that the typed model requires is there and of its type."""
    answer = create(client, response_format="verbose_json", timestamp_granularities=["word", "segment"])
    assert (answer.text, answer.language, answer.usage.type) == (TEXTS["train"], "english", "duration")
    assert 4.0 < answer.duration < 6.0
    for segment in answer.segments:
        for name, kind in SEGMENT_FIELDS.items():
            assert isinstance(getattr(segment, name), kind), name
    assert "".join(segment.text for segment in answer.segments) == TEXTS["train"]
    assert [word.word for word in answer.words] == TEXTS["train"].split()
    times = [time for word in answer.words for time in (word.start, word.end)]
    assert times == sorted(times) and times[-1] <= answer.duration


@supported("openai-rest", "response_format=diarized_json")
def test_text_by_speaker(client: openai.OpenAI) -> None:
    answer = create(
        client, model="gpt-4o-transcribe-diarize", response_format="diarized_json", chunking_strategy="auto"
    )
    assert (answer.text, answer.task, answer.usage.type) == (TEXTS["train"], "transcribe", "duration")
    assert 4.0 < answer.duration < 6.0
    assert " ".join(segment.text for segment in answer.segments) == TEXTS["train"]
    assert {segment.speaker for segment in answer.segments} == {"A"}
    assert len({segment.id for segment in answer.segments}) == len(answer.segments)


@supported("openai-rest", "known_speaker_names[]")
@supported("openai-rest", "known_speaker_references[]")
def test_known_speakers(client: openai.OpenAI) -> None:
    reference = "data:audio/flac;base64," + base64.b64encode(TRAIN.read_bytes()).decode()
    known: dict[str, Any] = {"known_speaker_names": ["agent"], "known_speaker_references": [reference]}
    messages = list(create(client, response_format="diarized_json", stream=True, **known))
    segments = [each for each in messages if each.type == "transcript.text.segment"]
    assert {each.speaker for each in segments} == {"agent"}
    assert (messages[-1].type, messages[-1].text) == ("transcript.text.done", TEXTS["train"])
    with pytest.raises(openai.BadRequestError, match="expected response_format diarized_json"):
        create(client, **known)


@supported("openai-rest", "language")
@approximated(
    "openai-rest",
    "languages[]",
    how="the language is one of these; `x-tutti-ignored` names the field where the model does not know all of them",
)
def test_languages(client: openai.OpenAI) -> None:
    """In a language of the model; others are refused, since nothing good would come of them."""
    assert create(client, language="en").text == TEXTS["train"]
    assert create(client, languages=["en"]).text == TEXTS["train"]
    several = client.audio.transcriptions.with_raw_response.create(model="m", file=TRAIN, languages=["en", "xx"])
    assert several.headers["x-tutti-ignored"] == "languages"
    with pytest.raises(openai.BadRequestError) as raised:
        create(client, language="xx")
    assert raised.value.param == "language"


@supported("openai-rest", "prompt")
@supported("openai-rest", "keywords[]")
@supported("openai-rest", "temperature")
def test_what_the_model_is_shown(client: openai.OpenAI) -> None:
    done = client.audio.transcriptions.with_raw_response.create(
        model="m", file=TRAIN, prompt="At the station.", keywords=["platform", "quarter"], temperature=0.0
    )
    assert "x-tutti-ignored" not in done.headers
    assert words(done.parse().text)[-3:] == ["quarter", "past", "nine"]


@approximated(
    "openai-rest", "include[]=logprobs", how="one entry for each word, with the mean probability of its tokens"
)
def test_logprobs(client: openai.OpenAI) -> None:
    answer = create(client, include=["logprobs"])
    assert "".join(each.token for each in answer.logprobs) == answer.text
    assert all(-5.0 < each.logprob <= 0.0 for each in answer.logprobs)
    assert bytes(int(byte) for each in answer.logprobs for byte in each.bytes).decode() == answer.text


@approximated("openai-rest", "chunking_strategy=auto", how="audio is always cut at pauses; its loudness is not changed")
@approximated(
    "openai-rest",
    "chunking_strategy=server_vad",
    how="`silence_duration_ms` from 100, `prefix_padding_ms` to 1000; `threshold`, in four steps with `webrtc`",
)
def test_chunking(client: openai.OpenAI) -> None:
    assert create(client, chunking_strategy="auto").text == TEXTS["train"]
    strategy = {"type": "server_vad", "silence_duration_ms": 400, "threshold": 0.6, "prefix_padding_ms": 200}
    done = client.audio.transcriptions.with_raw_response.create(model="m", file=TRAIN, chunking_strategy=strategy)
    assert "x-tutti-ignored" not in done.headers
    assert done.parse().text == TEXTS["train"]


def test_silence_has_no_text(client: openai.OpenAI) -> None:
    quiet = wav(np.zeros(16_000, dtype=np.float32))
    assert create(client, file=quiet).text == ""
    assert create(client, file=quiet, response_format="verbose_json").segments == []


@approximated("openai-rest", "stream", how="one delta for each segment; the usage counts 50 audio tokens per second")
def test_a_stream(client: openai.OpenAI) -> None:
    """Deltas, then exactly one last event with all that its typed model has."""
    train, hello = (read(name).astype(np.float32) / 32768 for name in ("train", "hello"))
    both = wav(np.concatenate((train, np.zeros(32_000, dtype=np.float32), hello)))
    *deltas, done = list(create(client, file=both, stream=True, include=["logprobs"]))
    assert len(deltas) >= 2
    assert {each.type for each in deltas} == {"transcript.text.delta"}
    assert "".join(each.delta for each in deltas) == done.text
    assert done.type == "transcript.text.done"
    assert done.text.startswith(TEXTS["train"]) and words(done.text)[-2:] == ["morning", "meeting"]
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens
    assert done.usage.output_tokens > 20
    assert "".join(each.token for each in done.logprobs) == done.text


def test_many_at_once(server: Running) -> None:
    """With the asynchronous client. No text depends on the other requests."""

    async def work() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.http}/v1", api_key="any", max_retries=0) as client:
            calls = (client.audio.transcriptions.create(model="m", file=AUDIO / f"{name}.flac") for name in names)
            texts = [answer.text for answer in await asyncio.gather(*calls)]
            stream = await client.audio.transcriptions.create(model="m", file=TRAIN, stream=True)
            return [*texts, [event async for event in stream][-1].text]

    names = ["train", "hello", "train", "call"]
    heard = asyncio.run(work())
    assert heard[0] == heard[2] == heard[4] == TEXTS["train"]
    assert "address on my account" in heard[3]


# What is refused.


def test_a_bad_request_is_explained(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        create(client, file=b"this is no audio")
    error = raised.value
    assert (error.code, error.param, error.type) == ("invalid_file", "file", "invalid_request_error")
    assert error.request_id and error.request_id.startswith("req_")
    assert "expected audio" in error.message


@pytest.mark.parametrize("n_bytes", [100, 20_000_000])
def test_a_wrong_key_is_reported(locked_server: Running, n_bytes: int) -> None:
    """Also to a client that is still sending a large file."""
    with openai.OpenAI(base_url=f"{locked_server.http}/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as raised:
            create(client, file=bytes(n_bytes))
        assert raised.value.code == "invalid_api_key"
        with pytest.raises(openai.AuthenticationError):
            client.models.list()
    with openai.OpenAI(base_url=f"{locked_server.http}/v1", api_key=KEY, max_retries=0) as client:
        assert create(client).text == TEXTS["train"]


@supported("openai-rest", "GET /v1/models")
@supported("openai-rest", "GET /v1/models/{model}")
def test_models(client: openai.OpenAI) -> None:
    model, openai_name = client.models.list()
    assert openai_name == client.models.retrieve("whisper-1")
    assert (model.id, model.object, model.owned_by) == (SMALL_MODEL_NAME, "model", "tutti")
    assert model.created > 0
    assert client.models.retrieve(SMALL_MODEL_NAME) == model
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("openai/whisper-small")
    assert raised.value.code == "model_not_found"


def test_a_file_that_is_too_large_is_reported(start_server: Callable[..., Running]) -> None:
    server = start_server(max_upload_mb=1)
    with (
        openai.OpenAI(base_url=f"{server.http}/v1", api_key="any", max_retries=0) as client,
        pytest.raises(openai.APIStatusError) as raised,
    ):
        create(client, file=bytes(20_000_000))
    assert (raised.value.status_code, raised.value.code) == (413, "too_large")


def test_no_room_is_tried_again(start_server: Callable[..., Running]) -> None:
    """The client waits as long as `Retry-After` says, and is served once there is room."""
    server = start_server(max_uploads=1)
    waits: list[str] = []
    place = server.service.admission.upload()

    def note(response: httpx.Response) -> None:
        if response.status_code == 429:
            waits.append(response.headers["retry-after"])
            # Here it is not waited for.
            response.headers["retry-after-ms"] = "1"
            if len(waits) == 2:
                place.__exit__(None, None, None)

    place.__enter__()
    http_client = openai.DefaultHttpxClient(event_hooks={"response": [note]})
    with openai.OpenAI(base_url=f"{server.http}/v1", api_key="any", http_client=http_client) as client:
        with pytest.raises(openai.RateLimitError) as raised:
            create(client.with_options(max_retries=0))
        assert raised.value.code == "overloaded"
        assert create(client).text == TEXTS["train"]
    assert waits == ["5", "5"]


@refused("openai-rest", "POST /v1/audio/translations, model that cannot", how="400; some models cannot")
@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
def test_translation_is_refused_by_a_model_that_cannot(start_server: Callable[..., Running]) -> None:
    server = start_server(FakeTranscriber(info=replace(MODEL, tasks=("transcribe",))))
    client = openai.OpenAI(base_url=f"{server.http}/v1", api_key="any")
    with client, pytest.raises(openai.BadRequestError, match="translate") as raised:
        client.audio.translations.create(model="whisper-1", file=TRAIN)
    assert (raised.value.code, raised.value.param) == ("unsupported_task", "model")


@pytest.mark.nightly
def test_leaving_a_stream_frees_its_place(server: Running) -> None:
    """The upload is over soon after the client has closed it."""
    content = wav(np.tile(read("train").astype(np.float32) / 32768, 8))
    with openai.OpenAI(base_url=f"{server.http}/v1", api_key="any", max_retries=0) as client:
        stream = create(client, file=content, stream=True)
        next(iter(stream))
        stream.close()
    server.wait_until_idle()


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


# Frameworks.


@pytest.mark.parametrize("model", ["whisper-1", "gpt-4o-mini-transcribe", "gpt-transcribe"])
def test_livekit_recognizes_a_turn(locked_server: Running, tmp_path: Path, model: str) -> None:
    """Each name makes it ask for another format, or send other fields."""
    path = tmp_path / "turn.raw"
    path.write_bytes(read("train").tobytes())
    hints = {"keywords": ["platform"]} if model == "gpt-transcribe" else {}

    def recognize(key: str, **options: object) -> Any:
        address = {"base_url": f"{locked_server.http}/v1", "api_key": key}
        return run_agent("livekit_rest.py", "livekit.plugins.openai", path=str(path), model=model, **address, **options)

    assert recognize(KEY, language="en", **hints) == {"text": TEXTS["train"], "language": "en"}
    if model == "whisper-1":
        assert recognize(KEY, detect_language=True) == {"text": TEXTS["train"], "language": "en"}
        assert recognize("wrong")["status"] == 401


@pytest.mark.parametrize("model", ["whisper-1", "gpt-transcribe"])
def test_pipecat_transcribes_a_turn(server: Running, tmp_path: Path, model: str) -> None:
    """With the measures of confidence that it asks each model for: of segments, or of words."""
    path = tmp_path / "turn.wav"
    path.write_bytes(wav(read("train").astype(np.float32) / 32768))
    options = {"base_url": f"{server.http}/v1", "model": model, "prompt": "At the station."}
    told = run_agent("pipecat_rest.py", "pipecat.services.openai", path=str(path), **options)
    assert told == {"text": TEXTS["train"], "n_measures": 1 if model == "whisper-1" else len(TEXTS["train"].split())}
