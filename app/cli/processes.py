"""Starts and stops the service: in one process, or as engine processes and gateway processes.

The only module that names the concrete engine.
"""

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING

from prometheus_client.multiprocess import mark_process_dead
from rich.console import Console

from tutti_server.app.background import in_background
from tutti_server.app.cli.engine_places import EnginePlace, place_engines
from tutti_server.app.cli.interrupts import EXIT_CODE_OF_SIGNAL
from tutti_server.app.cli.json_log import JsonFormatter
from tutti_server.app.cli.terminal import banner, console
from tutti_server.app.errors import SettingsError
from tutti_server.app.server.descriptors import reserve_descriptors
from tutti_server.app.server.main import Server, bind, build_app, try_ports
from tutti_server.app.server.plugins import installed_plugins
from tutti_server.app.service.idle_memory import return_memory
from tutti_server.app.service.models import FurtherModel, Models
from tutti_server.app.service.process_metrics import note_process
from tutti_server.app.service.reservations import RESERVED_S
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import N_COUNTS, AdmissionCounter, SharedState, keep_counts
from tutti_server.app.service.tls import load_tls, usable_tls
from tutti_server.app.voices.onnx_network import OnnxNetwork
from tutti_server.app.voices.turn_model import AudioTurnModel
from tutti_server.cluster.local.roles import GatewaySlot, StartError
from tutti_server.cluster.local.supervisor import Supervisor, SupervisorConfig
from tutti_server.engine import api
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.errors import EngineFailed
from tutti_server.engine.process_memory import return_freed_memory

if TYPE_CHECKING:
    from tutti_server.engine.engine import Engine

logger = logging.getLogger(__name__)

STOP_SLACK_S = 20.0
"""How long gateways may take in addition to the drain, in seconds, before they are killed.

Abandoned sessions, subscribers, open requests, the webhook and the last spans of traces need it.
"""
OWN_PACKAGES = ("tutti_server", "tutti")
"""Packages whose lines are logged at the level of the settings. Others log warnings and errors only."""


def set_up_logging(settings: Settings) -> None:
    """Log to the error stream: our own lines from the level of the settings on, others from warnings on.

    With gateways or several engines, each line has the name of its process. It is text, or an object in JSON.
    """
    is_one_of_several = bool(settings.gateways) or settings.engines != "1"
    process = " %(processName)s" if is_one_of_several else ""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    handler = logging.StreamHandler(sys.stderr)
    # The plug-in of telemetry fills in the trace, where there are traces.
    form = f"%(asctime)s %(levelname)s{process} %(name)s: %(message)s%(trace)s"
    text_formatter = logging.Formatter(form, defaults={"trace": ""})
    handler.setFormatter(JsonFormatter(is_one_of_several) if settings.log_format == "json" else text_formatter)
    # Other libraries log a line for every request or connection.
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler])
    for package in OWN_PACKAGES:
        logging.getLogger(package).setLevel(level)


def start_engine(settings: Settings, config: EngineConfig | None = None) -> "AbstractAsyncContextManager[Engine]":
    """The engine of these settings, in a thread of this process.

    Args:
        settings: with one model.
        config: the configuration of the engine; by default that of the settings.

    Raises:
        SettingsError: a setting of the engine is not valid.
    """
    config = config or _engine_config(settings)
    # Imported here because torch takes seconds, which `--help` and a wrong flag do not need.
    with _without_collection():
        from tutti_server.engine.engine import Engine

    return Engine.start(config)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Do not search for garbage meanwhile: imports make many objects that stay. It saves a fifth of torch's import."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _PartOfCommand(Server):
    """A server beside other work of one command, which decides what a signal does."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def loading_engine(settings: Settings) -> AsyncIterator["Engine"]:
    """The engine of these settings, in a thread of this process. A terminal shows that its model is being loaded."""
    async with AsyncExitStack() as stack:
        with console(stderr=True).status("Loading the model …"):
            engine = await stack.enter_async_context(start_engine(settings))
        yield engine


async def serve(settings: Settings) -> None:
    """Run the service until it is stopped by a signal."""
    _go_on_at_hangup()
    # Report the operator's mistakes before any process starts.
    for model in settings.models:
        _engine_config(replace(settings, model=model))
    engines = place_engines(settings)
    has_supervisor = bool(settings.gateways) or len(engines) > 1
    if has_supervisor:
        # Before the first line of the log, which has the name of the process.
        multiprocessing.current_process().name = "supervisor"
    if engines[0].gpu_share < 1:
        logger.info("%d engines share each GPU", round(1 / engines[0].gpu_share))
    if settings.metrics_have_no_reader:
        needed = "set TUTTI_KEYS_FILE, with a key that has the scope metrics"
        logger.warning("no client can read /metrics, for which TUTTI_METRICS_NEED_KEY wants a key: %s", needed)
    if settings.redis_url:
        from tutti_server.app.sharing.redis_store import check_credentials

        await check_credentials(settings.redis_url)
    for plugin in installed_plugins():
        await plugin.prepare(settings)
    if has_supervisor:
        await _serve_gateways(replace(settings, gateways=settings.gateways or 1), engines)
    else:
        await _serve_one_process(settings)


def _go_on_at_hangup() -> None:
    """Let SIGHUP end no session. It means that a terminal has closed, which drains, or asks to read files again.

    Files are read again without it. Where it is ignored, as under `nohup`, it stays ignored.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return
    had_terminal = _has_terminal()
    loop = asyncio.get_running_loop()

    def go_on() -> None:
        if had_terminal and not _has_terminal():
            # Shells send it again, which must not cut the drain short.
            loop.add_signal_handler(signal.SIGHUP, lambda: None)
            signal.raise_signal(signal.SIGTERM)
        else:
            logger.info("SIGHUP changes nothing: files of keys and certificates are read again without it")

    loop.add_signal_handler(signal.SIGHUP, go_on)


def _has_terminal() -> bool:
    """Whether this process has a terminal, which the system takes away when it closes."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


@asynccontextmanager
async def local_server(settings: Settings, out: Console) -> AsyncIterator[str]:
    """Run a server in this process while the context is open.

    Yields its WebSocket address when it accepts connections.
    """
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(bind(settings))
        engine = await stack.enter_async_context(loading_engine(settings))
        port = listener.getsockname()[1]
        started = asyncio.Event()
        server = _PartOfCommand(build_app(settings, engine, plugins=()), settings, on_started=started.set)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        tasks.create_task(_serve_with(server, engine, listener))
        try:
            await started.wait()
            out.print(banner(settings, engine.info, engine.stats(), port))
            yield f"ws://{settings.host}:{port}"
        finally:
            server.stop()


async def _serve_one_process(settings: Settings) -> None:
    tls = load_tls(settings)
    # Before the engine, because wrong settings of these should be reported at once.
    session_config = settings.session_config
    reserve_descriptors(settings)
    with bind(settings) as listener:
        try_ports(settings)
        first, *others = engine_configs(settings)
        further = [further_model(settings, each) for each in others]
        async with start_engine(settings, first) as engine:
            ready = banner(settings, engine.info, engine.stats(), listener.getsockname()[1])
            models = models_of(engine, further, settings, first)
            app = build_app(settings, engine, session_config, models=models)
            server = Server(app, settings, tls, lambda: console().print(ready))
            async with in_background(return_memory(app.state.service.admission, return_freed_memory)):
                await _serve_with(server, engine, listener)


def models_of(engine: "Engine", further: Sequence[FurtherModel], settings: Settings, config: EngineConfig) -> Models:
    """The models of a server, whose first engine runs."""
    if not further:
        return Models(engine)
    from tutti_server.engine.model_memory import DeviceMemory

    return Models(engine, further, idle_s=settings.model_idle_s, memory=DeviceMemory(config))


def further_model(settings: Settings, config: EngineConfig) -> FurtherModel:
    """A model that is loaded later. Its checkpoint is read now, so that the operator learns of mistakes at once."""
    # Imported here because torch takes seconds.
    from tutti_server.engine.model_card import read_card
    from tutti_server.engine.model_memory import needed_bytes

    @asynccontextmanager
    async def load() -> AsyncIterator[api.Transcriber]:
        async with start_engine(settings, config) as engine:
            yield engine
        await asyncio.to_thread(return_freed_memory)
        # The end of the engine has undone this for the others.
        gc.freeze()

    return FurtherModel(card=read_card(config), load=load, needed_bytes=needed_bytes(config))


async def _serve_with(server: Server, engine: "Engine", listener: socket) -> None:
    """Serve until the server is stopped. Raises `EngineFailed` after a drain if the engine has died."""

    async def stop_without_engine() -> EngineFailed:
        failure = await engine.ended()
        server.stop()
        return failure

    watch = asyncio.create_task(stop_without_engine())
    try:
        await server.serve([listener])
        if watch.done():
            raise watch.result()
    finally:
        watch.cancel()


async def _serve_gateways(settings: Settings, engines: Sequence[EnginePlace]) -> None:
    load_tls(settings)
    if settings.turn_model:
        AudioTurnModel(Path(settings.turn_model))
    if settings.speaker_model:
        OnnxNetwork(Path(settings.speaker_model))
    listener = bind(settings)
    try_ports(settings)
    port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="tutti-") as folder:
        # Each gateway inherits it; prometheus_client reads it when it is imported there.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        shared = SharedState(n_gateways=settings.gateways, metrics_folder=folder)
        note_process(folder)
        supervisor = Supervisor(
            SupervisorConfig(
                prepare=partial(_prepare_process, settings, folder),
                start_engines=tuple(partial(_start_engine_process, settings, place) for place in engines),
                serve=partial(_serve_gateway, settings, shared),
                folder=Path(folder),
                # All accept from the same one: see `Acceptor`.
                listeners=(listener,) * settings.gateways,
                n_admission_counts=N_COUNTS,
                keep_counts=keep_counts,
                keep_counts_s=RESERVED_S,
                stop_timeout_s=settings.drain_timeout_s + STOP_SLACK_S,
                on_ready=lambda model, stats: console().print(banner(settings, model, stats, port)),
                on_gateway_gone=partial(mark_process_dead, path=folder),
            )
        )
        signals: list[signal.Signals] = []

        def stop(number: signal.Signals) -> None:
            signals.append(number)
            supervisor.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        await supervisor.run()
    if len(signals) > 1:
        sys.exit(EXIT_CODE_OF_SIGNAL + signals[-1])


def _prepare_process(settings: Settings, folder: str) -> None:
    # The supervisor handles it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    set_up_logging(settings)
    note_process(folder)


def _start_engine_process(
    settings: Settings, place: EnginePlace
) -> AbstractAsyncContextManager[api.CallbackTranscriber]:
    # Before torch is loaded, which reads it.
    os.environ.update(place.environment)
    settings = replace(settings, threads=place.threads)
    return start_engine(settings, replace(_engine_config(settings), gpu_share=place.gpu_share))


async def _serve_gateway(
    settings: Settings,
    shared: SharedState,
    transcriber: api.Transcriber,
    slot: GatewaySlot,
    on_started: Callable[[], None],
) -> None:
    """Serve clients in a gateway process. Raises `StartError`."""
    reserve_descriptors(settings)
    shared = replace(shared, counter=AdmissionCounter(slot.admission_counts, slot.number))
    try:
        certificate = await usable_tls(settings)
        app = build_app(settings, transcriber, shared=shared)
        # What is loaded stays: the search for garbage then takes a few milliseconds, which sessions do not notice.
        gc.freeze()
        async with in_background(return_memory(app.state.service.admission, return_freed_memory)):
            await Server(app, settings, certificate, on_started).serve([slot.listener])
    except SettingsError as error:
        raise StartError(str(error)) from error


def engine_configs(settings: Settings) -> list[EngineConfig]:
    """The configuration of each model's engine. On a GPU, each of several has its part of the memory for slots."""
    configs = [_engine_config(replace(settings, model=model)) for model in settings.models]
    if len(configs) == 1:
        return configs
    # Imported here because torch takes seconds.
    with _without_collection():
        from tutti_server.engine.model_card import names_of

    return [
        replace(
            config,
            gpu_memory_fraction=config.gpu_memory_fraction / len(configs),
            served_names=(not number and config.served_names) or names_of(config.model),
        )
        for number, config in enumerate(configs)
    ]


def _engine_config(settings: Settings) -> EngineConfig:
    if len(settings.models) > 1:
        raise SettingsError(f"model: expected one for this command, got {', '.join(settings.models)}")
    try:
        return EngineConfig(
            model=settings.model,
            served_names=settings.served_names,
            device=settings.device,  # type: ignore[arg-type]  # EngineConfig checks it
            dtype=settings.dtype,  # type: ignore[arg-type]  # EngineConfig checks it
            encoder_dtype=settings.encoder_dtype,  # type: ignore[arg-type]  # EngineConfig checks it
            cross_cache=settings.cross_cache,  # type: ignore[arg-type]  # EngineConfig checks it
            audio_context=settings.audio_context,  # type: ignore[arg-type]  # EngineConfig checks it
            n_threads=settings.threads or None,
            n_slots=settings.slots or None,
            kernels=settings.kernels,  # type: ignore[arg-type]  # EngineConfig checks it
            max_encode_batch=settings.max_encode_batch,
        )
    except ValueError as error:
        raise SettingsError(str(error)) from error
