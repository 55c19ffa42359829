"""A server with two real models under load, one of which is loaded meanwhile, and given back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

import tutti
from tests.recordings import AUDIO, TEXTS, read, words
from tests.small_model import SMALL_MODEL, SMALL_MODEL_NAME, small_settings
from tutti_server.app.cli.processes import engine_configs, further_model, models_of, start_engine
from tutti_server.app.errors import SettingsError
from tutti_server.app.server.main import Server, bind, build_app
from tutti_server.app.service.models import FurtherModel, Models
from tutti_server.engine import api


@asynccontextmanager
async def serving(ended: asyncio.Event, **values: object) -> AsyncIterator[tuple[str, Models]]:
    """A server of these settings that refuses no session: its address and its models.

    The event is set when the engine of a further model has ended.
    """
    settings = small_settings(max_ahead_s=600.0, max_final_wait_s=1000.0, **values)
    first, *others = engine_configs(settings)
    further = [told(further_model(settings, each), ended) for each in others]
    async with start_engine(settings, first) as engine:
        models = models_of(engine, further, settings, first)
        server = Server(build_app(settings, engine, models=models), settings)
        with bind(settings) as listener:
            task = asyncio.create_task(server.serve([listener]))
            yield f"127.0.0.1:{listener.getsockname()[1]}", models
            server.stop()
            await task


def told(model: FurtherModel, ended: asyncio.Event) -> FurtherModel:
    """The model, with an event that is set at the end of its engine."""

    @asynccontextmanager
    async def load() -> AsyncIterator[api.Transcriber]:
        async with model.load() as engine:
            yield engine
        ended.set()

    return replace(model, load=load)


async def listen(address: str, name: str, model: str) -> tuple[str, str]:
    """The model that has answered, and the text."""
    async with tutti.connect(f"ws://{address}", language="en", interim=False, model=model) as session:
        await session.send(read(name).tobytes())
        await session.stop()
        said = [event.text async for event in session if isinstance(event, tutti.Utterance)]
        return session.started.model, " ".join(filter(None, said))


@pytest.mark.nightly
async def test_two_models_answer_under_load_and_one_is_given_back(tmp_path: Path) -> None:
    """Sessions of the first go on while the second is loaded and while its engine ends."""
    (tmp_path / "second").symlink_to(SMALL_MODEL)
    both = f"{SMALL_MODEL},{tmp_path / 'second'}"
    ended, is_over = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(100), serving(ended, model=both, model_idle_s=0.05) as (address, models):

        async def keep_speaking() -> None:
            while not is_over.is_set():
                assert words((await listen(address, "hello", SMALL_MODEL_NAME))[1])[1:] == words(TEXTS["hello"])[1:]

        speaking = asyncio.create_task(keep_speaking())
        for _ in range(2):
            answers = await asyncio.gather(*(listen(address, "train", "second") for _ in range(2)))
            for model, text in answers:
                assert (model, words(text)) == ("second", words(TEXTS["train"]))
            await ended.wait()
            ended.clear()
            assert "second" not in models.stats().engines
            assert models.stats().engines[SMALL_MODEL_NAME].n_engines == 1
        assert not speaking.done()
        is_over.set()
        await speaking


async def test_no_client_reads_where_a_model_lies(tmp_path: Path) -> None:
    """Neither in lists and pages nor in headers, texts, Deepgram's `model_info` and errors."""
    place = tmp_path / "private-place"
    place.mkdir()
    (place / "calls").symlink_to(SMALL_MODEL)
    form = {"model": "calls", "language": "en", "response_format": "verbose_json"}
    async with serving(asyncio.Event(), model=str(place / "calls")) as (address, _):
        model, _ = await listen(address, "hello", "calls")
        recording = (AUDIO / "hello.flac").read_bytes()
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=60) as client:
            answers = [
                *[await client.get(path) for path in ("/v1/models", "/page/model", "/", "/healthz", "/readyz")],
                await client.get("/v1/models/other"),
                await client.post("/v1/audio/transcriptions", data=form, files={"file": recording}),
                await client.post("/v1/audio/transcriptions", data=form | {"language": "xx"}, files={"file": b"no"}),
                await client.post("/v1/listen?model=nova-3&language=en", content=recording),
            ]
        with pytest.raises(tutti.TuttiError) as unknown:
            await listen(address, "hello", "other")
    assert model == "calls" and answers[-1].json()["metadata"]["model_info"]
    told = [model, str(unknown.value), *(f"{each.headers} {each.text}" for each in answers)]
    assert [each for each in told if "private-place" in each or str(SMALL_MODEL) in each] == []
    assert any("calls" in each for each in told[2:]), "the answers name the model"


def test_names_of_several_models_are_those_that_people_type(tmp_path: Path) -> None:
    settings = small_settings(model=f"{SMALL_MODEL},large-v3,openai/whisper-base@main", served_model_name="calls,mine")
    names = [each.served_names for each in engine_configs(settings)]
    assert names[0] == ("calls", "mine")
    assert names[1][:2] == ("openai/whisper-large-v3", "large-v3") and "whisper-large-v3" in names[1]
    assert names[2] == ("openai/whisper-base@main",)


@pytest.mark.parametrize(("values", "expected"), [({"gateways": 2}, "gateways"), ({"engines": "2"}, "engines")])
def test_several_models_need_a_server_of_one_process(values: dict[str, object], expected: str) -> None:
    with pytest.raises(SettingsError, match=f"model: expected one with {expected}, as only a server of one process"):
        small_settings(model="base,small", **values)


def test_a_command_without_a_server_takes_one_model() -> None:
    with pytest.raises(SettingsError, match="model: expected one for this command, got base, small"):
        start_engine(small_settings(model="base,small"))
