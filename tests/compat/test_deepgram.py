"""Deepgram's own SDKs for Python and JavaScript, live and for recordings, with nothing changed but the base URL."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from deepgram import AsyncDeepgramClient, DeepgramClient, DeepgramClientEnvironment
from deepgram.core.api_error import ApiError
from deepgram.core.events import EventType
from deepgram.errors import BadRequestError
from deepgram.listen.v2.types import (
    ListenV2Configure,
    ListenV2ConfigureSuccess,
    ListenV2ConfigureThresholds,
    ListenV2Connected,
    ListenV2TurnInfo,
)
from pydantic import BaseModel
from websockets.exceptions import InvalidStatus

from tests.compat.agents import run_agent
from tests.compat.conformance import supported
from tests.compat.conftest import KEY, NPM_TIMEOUT_S, Running
from tests.recordings import AUDIO, TEXTS, read, words

# The SDK asks the package `websockets` for names that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:websockets:DeprecationWarning")

FLUX: dict[str, Any] = {"model": "flux-general-en", "encoding": "linear16", "sample_rate": 16_000}
LIVE: dict[str, Any] = {"model": "nova-3", "encoding": "linear16", "sample_rate": 16_000}
NO_RETRIES: Any = {"max_retries": 0}
PIECE_BYTES = 3200


def environment(server: Running) -> DeepgramClientEnvironment:
    return DeepgramClientEnvironment(base=server.http, production=server.ws, agent=server.ws, agent_rest=server.http)


@contextmanager
def connected(server: Running, key: str = "any") -> Iterator[DeepgramClient]:
    with httpx.Client(timeout=30) as http:
        yield DeepgramClient(api_key=key, environment=environment(server), httpx_client=http)


def missing(value: object, path: str = "") -> list[str]:
    """Fields that the SDK's types require and that are missing. The SDK itself does not report them."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        lacks = [f"{path}.{name}" for name, field in fields.items() if field.is_required()]
        lacks = [name for name in lacks if name.rpartition(".")[2] not in value.model_fields_set]
        return lacks + [each for name in fields for each in missing(getattr(value, name), f"{path}.{name}")]
    if isinstance(value, list):
        return [each for item in value for each in missing(item, f"{path}[]")]
    return []


def transcript(messages: list[Any]) -> str:
    finals = [message for message in messages if message.type == "Results" and message.is_final]
    return " ".join(text for each in finals if (text := each.channel.alternatives[0].transcript))


def types(messages: list[Any]) -> list[str]:
    """Without those that come again and again."""
    return [each.type for at, each in enumerate(messages) if not at or each.type != messages[at - 1].type]


def heard(connection: Any, *says: str) -> list[Any]:
    """The messages that follow a recording and these messages of the client: whole ones, and no errors."""
    messages: list[Any] = []
    errors: list[object] = []
    connection.on(EventType.MESSAGE, messages.append)
    connection.on(EventType.ERROR, errors.append)
    audio = read("train").tobytes()
    for at in range(0, len(audio), PIECE_BYTES):
        connection.send_media(audio[at : at + PIECE_BYTES])
    for each in says:
        getattr(connection, f"send_{each}")()
    connection.start_listening()
    assert errors == []
    assert [lack for message in messages for lack in missing(message)] == []
    return messages


def test_the_blocking_client_listens(server: Running) -> None:
    """Speech, an answer to Finalize, then metadata and a clean close."""
    options = {"interim_results": True, "smart_format": True, "vad_events": True, "keyterm": ["platform", "city"]}
    with connected(server) as client, client.listen.v1.connect(**LIVE, **options) as connection:
        messages = heard(connection, "keep_alive", "finalize", "close_stream")
    assert transcript(messages) == TEXTS["train"]
    assert types(messages) == ["SpeechStarted", "Results", "Metadata"]
    assert [each.from_finalize for each in messages if each.type == "Results" and each.is_final][-1] is True
    spoken = next(each for each in messages if each.type == "Results" and each.speech_final)
    assert [word.punctuated_word for word in spoken.channel.alternatives[0].words] == TEXTS["train"].split()
    assert [word.word for word in spoken.channel.alternatives[0].words] == words(TEXTS["train"])


def test_the_blocking_client_transcribes(server: Running) -> None:
    with connected(server) as client:
        answer = client.listen.v1.media.transcribe_file(
            request=(AUDIO / "train.flac").read_bytes(),
            model="nova-3",
            smart_format=True,
            utterances=True,
            paragraphs=True,
        )
    assert missing(answer) == []
    (channel,) = answer.results.channels
    assert channel.alternatives[0].transcript == TEXTS["train"]
    assert channel.alternatives[0].confidence > 0.5
    assert " ".join(each.transcript for each in answer.results.utterances) == TEXTS["train"]
    assert channel.alternatives[0].paragraphs.transcript == TEXTS["train"]


def test_errors_of_recordings_have_their_classes(locked_server: Running) -> None:
    with connected(locked_server, KEY) as client:
        with pytest.raises(BadRequestError) as bad:
            client.listen.v1.media.transcribe_file(request=b"this is no audio", request_options=NO_RETRIES)
        assert (bad.value.status_code, bad.value.body["err_code"]) == (400, "Bad Request")
        with pytest.raises(BadRequestError, match="connects to no addresses"):
            client.listen.v1.media.transcribe_url(url="https://example.com/a.wav", request_options=NO_RETRIES)
    with connected(locked_server, "wrong") as client, pytest.raises(ApiError) as unknown:
        client.listen.v1.media.transcribe_file(request=b"RIFF", request_options=NO_RETRIES)
    assert (unknown.value.status_code, unknown.value.body["err_code"]) == (401, "INVALID_AUTH")


async def test_errors_of_streams_have_their_classes(locked_server: Running) -> None:
    """The blocking client lets the error of its WebSocket library through."""
    with (
        connected(locked_server, "wrong") as client,
        pytest.raises(InvalidStatus) as refused,
        client.listen.v1.connect(**LIVE),
    ):
        pass
    assert refused.value.response.status_code == 401
    assert refused.value.response.headers["dg-error"]
    async with httpx.AsyncClient() as http:
        wrong = AsyncDeepgramClient(api_key="wrong", environment=environment(locked_server), httpx_client=http)
        with pytest.raises(ApiError) as unknown:
            async with wrong.listen.v1.connect(**LIVE):
                pass
        assert unknown.value.status_code == 401
        right = AsyncDeepgramClient(api_key=KEY, environment=environment(locked_server), httpx_client=http)
        with pytest.raises(ApiError) as bad:
            async with right.listen.v1.connect(model="nova-3", encoding="g729"):
                pass
        assert bad.value.status_code == 400


def test_the_blocking_client_listens_to_turns(server: Running) -> None:
    """Its messages are answered; a turn that the client ends has all of its text."""
    with connected(server) as client, client.listen.v2.connect(**FLUX, eager_eot_threshold=0.5) as connection:
        thresholds = ListenV2ConfigureThresholds(eot_threshold=0.9, eot_timeout_ms=3000)
        connection.send_configure(ListenV2Configure(thresholds=thresholds, keyterms=["platform", "city"]))
        messages = heard(connection, "force_end_turn", "close_stream")
    assert types(messages) == ["Connected", "ConfigureSuccess", "TurnInfo"]
    assert [type(message) for message in messages[:3]] == [
        ListenV2Connected,
        ListenV2ConfigureSuccess,
        ListenV2TurnInfo,
    ]
    assert (messages[1].thresholds.eot_threshold, messages[1].keyterms) == (0.9, ["platform", "city"])
    last = messages[-1]
    assert (last.event, last.transcript) == ("EndOfTurn", TEXTS["train"])
    assert [word.word for word in last.words] == TEXTS["train"].split()


@pytest.mark.node
@pytest.mark.timeout(NPM_TIMEOUT_S)
def test_javascript(locked_server: Running, node: Callable[..., Any], tmp_path: Path) -> None:
    """A stream that is closed cleanly is not opened again; a recording goes out as it is read."""
    live = {"model": "nova-3", "encoding": "linear16", "sample_rate": 16000, "interim_results": "true"}
    call = {
        "address": locked_server.address,
        "audio": recording(tmp_path),
        "live": {**live, "smart_format": "true", "vad_events": "true"},
        "recording": str(AUDIO / "train.flac"),
    }
    done = node("deepgram.mjs", apiKey=KEY, params={"model": "nova-3", "smart_format": True}, **call)
    messages = done["live"]["messages"]
    finals = [each for each in messages if each["type"] == "Results" and each["is_final"]]
    assert " ".join(each["channel"]["alternatives"][0]["transcript"] for each in finals).strip() == TEXTS["train"]
    assert finals[-1]["from_finalize"] is True
    assert messages[-1]["type"] == "Metadata"
    assert (done["live"]["code"], done["live"]["connects"], done["live"]["readyState"]) == (1000, 1, 3)
    (channel,) = done["recorded"]["answer"]["results"]["channels"]
    assert channel["alternatives"][0]["transcript"] == TEXTS["train"]

    refused = node("deepgram.mjs", apiKey="wrong", params={"model": "nova-3"}, **call)
    assert "401" in refused["live"]["refused"]
    assert refused["recorded"]["error"]["status"] == 401
    assert refused["recorded"]["error"]["body"]["err_code"] == "INVALID_AUTH"


@pytest.mark.nightly
@supported("deepgram-live", "livekit-plugins-deepgram: STT")
@supported("deepgram-prerecorded", "livekit-plugins-deepgram: STT")
@supported("deepgram-flux", "livekit-plugins-deepgram: STTv2")
@pytest.mark.parametrize("is_flux", [False, True])
def test_livekit(locked_server: Running, tmp_path: Path, is_flux: bool) -> None:
    """Its speech-to-text classes, as they come."""
    options = {"eager_eot_threshold": 0.4} if is_flux else {}
    address = f"{locked_server.http}/{'v2' if is_flux else 'v1'}/listen"
    told = run_agent(
        "livekit_stt.py", path=recording(tmp_path), is_flux=is_flux, api_key=KEY, base_url=address, **options
    )
    assert told["recorded"] == (None if is_flux else TEXTS["train"])
    finals = [event for event in told["events"] if event["type"] == "final_transcript"]
    assert [(event["text"], event["n_words"]) for event in finals] == [(TEXTS["train"], len(TEXTS["train"].split()))]
    kinds = [each["type"] for each in told["events"]]
    kinds = [kind for kind in kinds if kind not in ("interim_transcript", "preflight_transcript")]
    assert kinds == ["start_of_speech", "final_transcript", "end_of_speech"]


@pytest.mark.nightly
@supported("deepgram-live", "pipecat-ai: DeepgramSTTService")
def test_pipecat(locked_server: Running, tmp_path: Path) -> None:
    """Its service sends Finalize at the end of a turn, and waits for the answer."""
    options = {"api_key": KEY, "base_url": locked_server.http}
    told = run_agent("pipecat_stt.py", path=recording(tmp_path), is_flux=False, **options)
    assert told["finals"] == [[TEXTS["train"], True]]
    assert told["errors"] == []


@supported("deepgram-flux", "pipecat-ai: DeepgramFluxSTTService")
def test_pipecat_listens_to_turns(locked_server: Running, tmp_path: Path) -> None:
    options = {"api_key": KEY, "url": f"{locked_server.ws}/v2/listen"}
    told = run_agent("pipecat_stt.py", path=recording(tmp_path), is_flux=True, **options)
    assert [text for text, _ in told["finals"]] == [TEXTS["train"]]
    assert (told["news"][0], told["news"][-1]) == ("on_start_of_turn", "on_end_of_turn")
    assert told["errors"] == []


def recording(folder: Path) -> str:
    path = folder / "train.raw"
    path.write_bytes(read("train").tobytes())
    return str(path)
