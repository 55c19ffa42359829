"""`tutti serve --engines 2`: real processes with the small model, one of which is killed while it works."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

import tutti
from tests.recordings import AUDIO, TEXTS, read
from tests.supervised import PATIENCE_S, Supervisor, listen, supervised, text

pytestmark = pytest.mark.nightly

N_SESSIONS = 2


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    with supervised(tmp_path_factory.mktemp("engines"), engines=2) as supervisor:
        yield supervisor


@pytest.fixture(autouse=True)
async def patience() -> AsyncIterator[None]:
    async with asyncio.timeout(PATIENCE_S):
        yield


async def n_up(supervisor: Supervisor) -> list[float]:
    counters = await supervisor.counters()
    return [counters.value("tutti_engine_up", engine=engine) for engine in ("0", "1")]


def test_two_engines_have_one_gateway(supervisor: Supervisor) -> None:
    """Without `--gateways`. Only the engines have torch."""
    assert (len(supervisor.with_torch()), len(supervisor.gateways())) == (2, 1)


async def test_each_session_survives_the_end_of_an_engine(supervisor: Supervisor) -> None:
    """Its text is that of an undisturbed one, and the other engine answers meanwhile."""
    audio = read("call")
    alone = text(await listen(supervisor, audio.tobytes()))
    engine, other = supervisor.with_torch()
    half = len(audio) // 2
    have_text = [asyncio.Event() for _ in range(N_SESSIONS)]
    is_killed = asyncio.Event()

    async def speak(number: int) -> list[tutti.Event]:
        async with supervisor.connect() as session:
            received: list[tutti.Event] = []
            await session.send(audio[:half].tobytes())
            async for event in session:
                received.append(event)
                if isinstance(event, tutti.Interim):
                    break
            have_text[number].set()
            await is_killed.wait()
            await session.send(audio[half:].tobytes())
            await session.stop()
            return received + [event async for event in session]

    async with asyncio.TaskGroup() as tasks, supervisor.http() as client:
        sessions = [tasks.create_task(speak(number)) for number in range(N_SESSIONS)]
        for each in have_text:
            await each.wait()
        os.kill(engine, signal.SIGKILL)
        while await n_up(supervisor) != [0, 1]:
            pass
        is_killed.set()
        # The killed one may be back already: the service is ready either way.
        assert (await client.get("/readyz")).status_code == 200
        file = await transcribe(client)
        assert file == TEXTS["train"]
    for task in sessions:
        received = task.result()
        assert text(received) == alone
        begun = [event.utterance for event in received if isinstance(event, tutti.SpeechStarted)]
        ended = [event.utterance for event in received if isinstance(event, tutti.Utterance)]
        assert begun == ended and len(set(ended)) == len(ended)
        assert not [event for event in received if isinstance(event, tutti.ErrorEvent)]
    assert engine not in supervisor.with_torch() and other in supervisor.with_torch()


async def transcribe(client: httpx.AsyncClient) -> str:
    files = {"file": ("train.flac", (AUDIO / "train.flac").read_bytes())}
    answer = await client.post("/v1/audio/transcriptions", files=files, data={"language": "en"})
    return str(answer.json()["text"])


async def test_an_engine_that_was_restarted_decodes_again(supervisor: Supervisor) -> None:
    """Windows go to either engine, by what the gateway knows of their work at that moment."""
    async with supervisor.http() as client:
        while await n_up(supervisor) != [1, 1]:
            assert (await client.get("/readyz")).status_code == 200
    before = await supervisor.counters()
    while not (await supervisor.counters() - before).value("tutti_engine_encode_batch_count", engine="0"):
        assert text(await listen(supervisor, read("train").tobytes())) == TEXTS["train"]
