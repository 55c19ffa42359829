"""Deepgram's own SDK with recordings at an address, and with answers that come later."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepgram.errors import BadRequestError
from deepgram.types.listen_v1response import ListenV1Response

from tests.compat.conformance import supported
from tests.compat.conftest import KEY, OtherServer, Running
from tests.compat.test_deepgram import NO_RETRIES, connected, missing
from tests.recordings import AUDIO, TEXTS
from tutti_server.app.publish.webhook import SIGNATURE_HEADER

# The SDK asks the package `websockets` for names that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:websockets:DeprecationWarning")

FILE = "deepgram-prerecorded"
ELSEWHERE = "elsewhere HTTP 400"
WAIT_S = 60
ALLOWED: dict[str, Any] = {
    "jobs": True,
    "api_keys": KEY,
    "url_hosts": "127.0.0.1",
    "callback_hosts": "127.0.0.1",
    "private_networks": "127.0.0.0/8",
    "job_secret": "secret",
}


@supported(FILE, "body of JSON with url", how=f"where `TUTTI_URL_HOSTS` allows its host; {ELSEWHERE}")
def test_a_recording_is_fetched(start_server: Callable[..., Running], other: OtherServer) -> None:
    server = start_server(**ALLOWED | {"jobs": False, "callback_hosts": "", "job_secret": ""})
    with connected(server, KEY) as client:
        answer: Any = client.listen.v1.media.transcribe_url(url=f"{other.url}/train.flac", punctuate=True)
        with pytest.raises(BadRequestError) as foreign:
            client.listen.v1.media.transcribe_url(url="http://127.0.0.2/a.wav", request_options=NO_RETRIES)
    assert missing(answer) == []
    assert answer.results.channels[0].alternatives[0].transcript == TEXTS["train"]
    assert foreign.value.body["err_code"] == "REMOTE_CONTENT_ERROR"
    assert "expected a host that the operator allows" in foreign.value.body["err_msg"]


@supported(
    FILE, "callback", how=f"where the server has `TUTTI_JOBS`, and `TUTTI_CALLBACK_HOSTS` allows its host; {ELSEWHERE}"
)
@supported(FILE, "callback_method")
@pytest.mark.parametrize("method", ["POST", pytest.param("PUT", marks=pytest.mark.nightly)])
def test_the_answer_comes_later(
    start_server: Callable[..., Running], other: OtherServer, tmp_path: Path, method: Any
) -> None:
    """Its body is the ordinary one. It is signed, and names the key without showing it."""
    server = start_server(**ALLOWED, data_folder=str(tmp_path))
    callback = f"{other.url.replace('//', '//user:pass%20word@')}/done?a=b"
    options: dict[str, Any] = {"callback": callback, "callback_method": method, "utterances": True, "punctuate": True}
    with connected(server, KEY) as client:
        if method == "POST":
            accepted: Any = client.listen.v1.media.transcribe_url(url=f"{other.url}/train.flac", **options)
        else:
            accepted = client.listen.v1.media.transcribe_file(request=(AUDIO / "train.flac").read_bytes(), **options)
    command, path, headers, content = other.received.get(timeout=WAIT_S)
    body = json.loads(content)
    assert (command, path) == (method, "/done?a=b")
    assert headers["dg-request-id"] == accepted.request_id == body["metadata"]["request_id"]
    assert headers["dg-token"] == "unnamed" and KEY not in str(headers) and SIGNATURE_HEADER in headers
    assert headers["authorization"] == "Basic dXNlcjpwYXNzIHdvcmQ="
    answer = ListenV1Response(**body)
    assert missing(answer) == []
    assert " ".join(each["transcript"] for each in body["results"]["utterances"]) == TEXTS["train"]


def test_what_fails_later_is_reported(start_server: Callable[..., Running], other: OtherServer, tmp_path: Path) -> None:
    server = start_server(**ALLOWED, data_folder=str(tmp_path))
    with connected(server, KEY) as client:
        accepted: Any = client.listen.v1.media.transcribe_file(request=b"no audio", callback=other.url)
        with pytest.raises(BadRequestError, match="callback: expected a host that the operator allows"):
            client.listen.v1.media.transcribe_file(request=b"x", callback="http://10.0.0.1/")
    *_, content = other.received.get(timeout=WAIT_S)
    body = json.loads(content)
    assert (body["err_code"], body["request_id"]) == ("Bad Request", accepted.request_id)
