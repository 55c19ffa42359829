"""OpenAI's own SDKs for Python and JavaScript, and file transcription over HTTP."""

import openai
import pytest

from tests.compat.conformance import supported
from tests.compat.conftest import NPM_TIMEOUT_S, Running
from tests.recordings import AUDIO, TEXTS


@supported("openai-rest", "file")
def test_a_file_is_transcribed(server: Running) -> None:
    client = openai.OpenAI(base_url=f"{server.http}/v1", api_key="any")
    with client, (AUDIO / "train.flac").open("rb") as file:
        assert client.audio.transcriptions.create(model="whisper-1", file=file).text == TEXTS["train"]


@pytest.mark.node
@pytest.mark.timeout(NPM_TIMEOUT_S)
def test_javascript(server: Running, node) -> None:
    """A read stream goes out chunked, with the file first and without a length."""
    call = {"path": str(AUDIO / "train.flac"), "params": {"model": "whisper-1"}}
    (done,) = node("transcribe.mjs", baseURL=f"{server.http}/v1", apiKey="any", calls=[call])
    assert done["answer"]["text"] == TEXTS["train"]
