"""The whole service with the small model, as clients see it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

import tutti
from benchmarks.server_counters import Counters
from tests.recordings import TEXTS, read
from tests.small_model import SMALL_MODEL, small_settings
from tests.supervised import text
from tutti_server.app.server.main import Server, bind, build_app
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address() -> AsyncIterator[str]:
    """Host and port of a running service with the small model. At the end all windows must have ended."""
    # No session is refused on a slow machine, and windows of several sessions share batches.
    settings = small_settings(max_ahead_s=600.0, max_final_wait_s=1000.0)
    async with Engine.start(EngineConfig(model=SMALL_MODEL, max_wait_ms=300.0)) as engine:
        server = Server(build_app(settings, engine), settings)
        with bind(settings) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            yield f"127.0.0.1:{listener.getsockname()[1]}"
            server.stop()
            await serving
        stats = engine.stats()
        assert (stats.running, stats.waiting_finals, stats.waiting_interims) == (0, 0, 0)


async def listen(address: str, audio: bytes, **options: Any) -> list[tutti.Event]:
    """All events that the service sends for this audio."""
    async with tutti.connect(f"ws://{address}", language="en", **options) as session:
        await session.send(audio)
        await session.stop()
        return [event async for event in session]


async def test_sessions_share_batches_and_each_gets_its_own_words(address: str) -> None:
    """The encoder batches windows of several sessions, and no transcript depends on the other sessions."""
    recordings = {name: read(name).tobytes() for name in ("hello", "train", "call")}

    async def listen_to(name: str) -> list[tutti.Event]:
        # With a fixed silence the utterances do not depend on how soon the engine answers.
        return await listen(address, recordings[name], interim=False, endpointing="vad")

    alone = {name: text(await listen_to(name)) for name in recordings}
    before = await _counters(address)
    names = [list(recordings)[index % 3] for index in range(9)]
    together = await asyncio.gather(*map(listen_to, names))
    grown = await _counters(address) - before
    for name, received in zip(names, together, strict=True):
        assert text(received) == alone[name]
    assert alone["train"] == TEXTS["train"]
    windows = grown.value("tutti_engine_encode_batch_sum")
    assert windows >= len(names)
    assert grown.value("tutti_engine_encode_batch_count") < windows
    waited = [grown.value("tutti_engine_queue_seconds_count", priority=name) for name in ("final", "speculative")]
    assert sum(waited) == windows


async def test_captions_grow_and_end_as_they_were_shown(address: str) -> None:
    """Interims arrive during speech, and the final text begins with their stable text."""
    samples = read("call")
    async with tutti.connect(f"ws://{address}", language="en") as session:
        captions = tutti.Transcript()
        shown: dict[int, str] = {}

        async def chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(samples), 8000):
                yield samples[start : start + 8000].tobytes()
                await asyncio.sleep(0)

        async for event in session.stream(chunks()):
            captions.add(event)
            for caption in captions.open_captions():
                before = shown.get(caption.utterance, "")
                now = caption.final + caption.stable
                assert now.startswith(before)
                shown[caption.utterance] = now
            if isinstance(event, tutti.Utterance):
                assert event.text.startswith(shown[event.utterance])
    assert any(shown.values())
    assert "address on my account" in captions.text()


async def _counters(address: str) -> Counters:
    async with httpx.AsyncClient() as client:
        return Counters.parse((await client.get(f"http://{address}/metrics")).text)
