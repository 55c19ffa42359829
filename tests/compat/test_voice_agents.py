"""LiveKit's and Pipecat's agents, which transcribe turns through OpenAI's SDK. Skipped where they are not installed.

They are half a gigabyte each: `pip install livekit-plugins-openai` and `pip install 'pipecat-ai[openai]'`.
"""

import asyncio
from typing import Any

import numpy as np
import pytest

from tests.app.test_rest import wav
from tests.compat.conftest import KEY, Running
from tests.recordings import TEXTS, read

# Theirs are their own business.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("model", ["whisper-1", "gpt-4o-mini-transcribe", "gpt-transcribe"])
def test_livekit_recognizes_a_turn(locked_server: Running, model: str) -> None:
    """Each name makes it ask for another format, or send other fields."""
    openai = pytest.importorskip("livekit.plugins.openai")
    from livekit import rtc
    from livekit.agents import APIConnectOptions, APIStatusError

    samples = read("train")
    frame = rtc.AudioFrame(samples.tobytes(), 16_000, 1, len(samples))
    once = APIConnectOptions(max_retry=0)

    async def recognize(key: str, **options: Any) -> Any:
        stt = openai.STT(base_url=f"{locked_server.http}/v1", api_key=key, model=model, **options)
        async with stt._client:
            return await stt.recognize(frame, conn_options=once)

    hints = {"keywords": ["platform"]} if model == "gpt-transcribe" else {}
    (heard,) = asyncio.run(recognize(KEY, language="en", **hints)).alternatives
    assert (heard.text, heard.language) == (TEXTS["train"], "en")
    (heard,) = asyncio.run(recognize(KEY, detect_language=True)).alternatives
    assert (heard.text, heard.language) == (TEXTS["train"], "en")
    with pytest.raises(APIStatusError) as refused:
        asyncio.run(recognize("wrong"))
    assert refused.value.status_code == 401 and refused.value.request_id.startswith("req_")


@pytest.mark.parametrize("model", ["whisper-1", "gpt-transcribe"])
def test_pipecat_transcribes_a_turn(server: Running, model: str) -> None:
    """With the measures of confidence that it asks each model for."""
    service = pytest.importorskip("pipecat.services.openai.stt").OpenAISTTService
    content = wav(read("train").astype(np.float32) / 32768)

    async def run() -> list[Any]:
        settings = service.Settings(model=model, prompt="At the station.")
        stt = service(
            api_key="any",
            base_url=f"{server.http}/v1",
            settings=settings,
            include_prob_metrics=True,
            sample_rate=16_000,
        )
        async with stt._client:
            return [frame async for frame in stt.run_stt(content)]

    (heard,) = asyncio.run(run())
    assert heard.text == TEXTS["train"]
    assert heard.result.segments if model == "whisper-1" else heard.result.logprobs
