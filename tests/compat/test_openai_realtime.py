"""OpenAI's own SDKs for Python and JavaScript, live against a real server with the small model."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import trustme
from openai.types.beta.realtime import realtime_server_event as beta_server_event
from openai.types.realtime import realtime_server_event
from pydantic import TypeAdapter

from tests.compat.conformance import supported
from tests.compat.conftest import KEY, NPM_TIMEOUT_S, Running
from tests.recordings import TEXTS, encoded, read

# The SDK uses websockets in a way that its version 17.1 has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:connect\\(\\) must be used as a context manager:DeprecationWarning")

DIALECT = "openai-realtime"
GA = TypeAdapter(realtime_server_event.RealtimeServerEvent)
BETA = TypeAdapter(beta_server_event.RealtimeServerEvent)
COMPLETED = "conversation.item.input_audio_transcription.completed"
DELTA = "conversation.item.input_audio_transcription.delta"
SEGMENT = "conversation.item.input_audio_transcription.segment"


def spoken(name: str, encoding: str = "pcm_s16le", sample_rate: int = 24_000, silence_s: float = 1.0) -> list[str]:
    """A recording and then silence, in pieces of base64, as clients send them."""
    samples = np.concatenate((read(name), np.zeros(round(16_000 * silence_s), dtype="<i2")))
    data = encoded(samples, encoding, sample_rate)
    size = len(data) // 40 + 1
    return [base64.b64encode(data[at : at + size]).decode() for at in range(0, len(data), size)]


def check_events(told: list[Any], model: TypeAdapter[Any] = GA) -> str:
    """Every event has every field that the SDK's typed models require, of the right type. Returns the transcript."""
    assert len({event.event_id for event in told}) == len(told)
    for event in told:
        # The SDKs construct their models without looking; here they look.
        checked = model.validate_python(event.to_dict(), strict=True)
        assert type(checked) is type(event) and checked.type == event.type
    done = [event for event in told if event.type == COMPLETED]
    for event in done:
        deltas = [each.delta for each in told if each.type == DELTA and each.item_id == event.item_id]
        assert "".join(deltas) == event.transcript
        assert event.usage.type == "duration" and event.usage.seconds > 0
    return " ".join(event.transcript for event in done)


def until_completed(connection: Any) -> list[Any]:
    told = []
    for event in connection:
        told.append(event)
        assert event.type != "error", event
        if event.type == COMPLETED:
            break
    return told


@supported(DIALECT, COMPLETED)
def test_turns_end_by_themselves(server: Running) -> None:
    """The synchronous client, as its documentation has it, with everything that it can set."""
    session: Any = {
        "type": "transcription",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "transcription": {"model": "gpt-4o-transcribe", "language": "en", "prompt": "At the station."},
                "turn_detection": {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 600},
                "noise_reduction": {"type": "near_field"},
            }
        },
        "include": ["item.input_audio_transcription.logprobs"],
    }
    with (
        openai.OpenAI(base_url=f"{server.http}/v1", api_key="any") as client,
        client.realtime.connect(extra_query={"intent": "transcription"}) as connection,
    ):
        connection.session.update(session=session)
        for piece in spoken("train"):
            connection.input_audio_buffer.append(audio=piece)
        told = until_completed(connection)
    assert check_events(told) == TEXTS["train"]
    kinds = [event.type.rpartition(".")[2] for event in told]
    assert kinds[:3] == ["created", "updated", "speech_started"]
    in_order = list(map(kinds.index, ["speech_started", "speech_stopped", "committed", "added", "done", "completed"]))
    assert sorted(in_order) == in_order and kinds.index("delta") < in_order[-1]
    updated = next(event for event in told if event.type == "session.updated")
    assert updated.session.audio.input.turn_detection.silence_duration_ms == 600
    assert {warning["param"].rpartition(".")[2] for warning in updated.warnings} == {"model", "noise_reduction"}
    done = told[-1]
    assert [each.token for each in done.logprobs] == TEXTS["train"].split()
    assert done.languages[0].code == "en" and 4.0 < done.usage.seconds < 6.0
    segments = [event for event in told if event.type == SEGMENT]
    assert "".join(segment.text for segment in segments) == TEXTS["train"]
    assert segments[0].start < 0.5 and 3.4 < segments[-1].end < 5.0


def test_the_client_of_the_beta(server: Running) -> None:
    """With its flat session, and the events that it knows."""
    client = openai.OpenAI(base_url=f"{server.http}/v1", websocket_base_url=f"{server.ws}/v1", api_key="any")
    session: Any = {
        "input_audio_format": "pcm16",
        "input_audio_transcription": {"model": "whisper-1", "language": "en"},
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 600},
    }
    with client, client.beta.realtime.connect(model="gpt-4o-realtime-preview") as connection:
        connection.transcription_session.update(session=session)
        for piece in spoken("train"):
            connection.input_audio_buffer.append(audio=piece)
        told = until_completed(connection)
    updated = next(event for event in told if event.type == "transcription_session.updated")
    assert updated.session.input_audio_format == "pcm16"
    # Its model wants a secret, which only sessions made over HTTP have.
    told.remove(updated)
    assert check_events(told, BETA) == TEXTS["train"]
    assert "conversation.item.created" in [event.type for event in told]


@pytest.mark.node
@pytest.mark.timeout(NPM_TIMEOUT_S)
def test_javascript(start_server: Callable[..., Running], tmp_path: Path, node: Callable[..., Any]) -> None:
    """It dials wss always; in a browser the key is a subprotocol. It reports a wrong key."""
    authority = trustme.CA()
    own, trusted = tmp_path / "own.pem", tmp_path / "ca.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(own))
    authority.cert_pem.write_to_path(str(trusted))
    server = start_server(api_keys=KEY, tls_cert=str(own), tls_key=str(own))
    call = {"caPath": str(trusted), "baseURL": f"https://{server.address}/v1", "audioPath": recording(tmp_path, 24_000)}
    for kind in ("ws", "browser"):
        told = node("realtime.mjs", kind=kind, apiKey=KEY, **call)
        assert [event["transcript"] for event in told if event["type"] == COMPLETED] == [TEXTS["train"]]
        for event in told:
            GA.validate_python(event, strict=True)
        assert told[0]["type"] == "session.created"
    (refused,) = node("realtime.mjs", kind="ws", apiKey="wrong", **call)
    assert refused["error"]["name"] == "OpenAIRealtimeError" and "401" in refused["error"]["message"]


def recording(folder: Path, sample_rate: int) -> str:
    path = folder / "audio.raw"
    path.write_bytes(b"".join(map(base64.b64decode, spoken("train", sample_rate=sample_rate))))
    return str(path)
