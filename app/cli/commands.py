"""The command line, `tutti`. The only module that names the concrete engine."""

import asyncio
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import fields, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, TypeVar

import click
import uvloop
from prometheus_client.multiprocess import mark_process_dead
from rich.console import Console
from rich.table import Table

from app.cli.demo import SAMPLE, run_demo
from app.cli.terminal import FORMATS, print_transcript
from app.errors import MediaError, SessionError, SettingsError
from app.main import Server, bind, bind_each, build_app
from app.service.gateway_counts import AdmissionCounter, Shared
from app.service.settings import ENV_PREFIX, Settings, check_environment
from app.service.tls import load_tls
from cluster.local.roles import GatewaySlot
from cluster.local.supervisor import Supervisor, SupervisorConfig, SupervisorError
from engine import api
from engine.checkpoint.catalog import EMBEDDED_MODEL, KNOWN_MODELS
from engine.config import EngineConfig
from engine.errors import EngineError
from engine.process_environment import limit_openmp_spinning

STOP_SLACK_S = 15.0
"""What gateways may take beyond draining, for open requests and the webhook, before they are killed."""
ENGINE_SETTINGS = (
    "model",
    "device",
    "dtype",
    "encoder_dtype",
    "kernels",
    "threads",
    "slots",
    "gpu_memory_fraction",
    "max_encode_batch",
    "max_wait_ms",
)

_Function = TypeVar("_Function", bound=Callable[..., Any])


def settings_options(*names: str) -> Callable[[_Function], _Function]:
    """A flag and an environment variable for each of these settings, or for all of them."""

    def decorate(function: _Function) -> _Function:
        for setting in reversed(fields(Settings)):
            if names and setting.name not in names:
                continue
            function = click.option(
                "--" + setting.name.replace("_", "-"),
                type=setting.type,
                is_flag=setting.type is bool,
                default=setting.default,
                envvar=ENV_PREFIX + setting.name.upper(),
                show_envvar=True,
                show_default=setting.type is not bool and setting.default != "",
                help=setting.metadata["help"],
            )(function)
        return function

    return decorate


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(version("tutti-server"), prog_name="tutti")
def cli() -> None:
    """Live transcription for many voices at once: one batched Whisper behind a streaming service.

    Start with `tutti demo`, then `tutti serve`.
    """


@cli.command()
@settings_options()
def serve(**values: Any) -> None:
    """Run the service: live sessions, file transcription, and the captions page."""
    settings = _settings(values)
    _run(_serve(settings))


async def _serve(settings: Settings) -> None:
    if settings.gateways:
        await _serve_cell(settings)
        return
    tls = load_tls(settings)
    with bind(settings) as listener:
        async with _start_engine(settings) as engine:
            port = listener.getsockname()[1]
            _console().print(_banner(settings, engine.info, port))
            await Server(build_app(settings, engine), settings, tls).serve([listener])


async def _serve_cell(settings: Settings) -> None:
    """The engine in a process of its own, and gateways in theirs."""
    # What the operator can mend is told before there are any.
    load_tls(settings)
    _engine_config(settings)
    listeners = bind_each(settings)
    port = listeners[0].getsockname()[1]
    multiprocessing.current_process().name = "supervisor"
    with tempfile.TemporaryDirectory(prefix="tutti-") as folder:
        # Read by prometheus_client as it is imported, in each gateway.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        shared = Shared(n_gateways=settings.gateways, metrics_folder=folder)
        cell = Supervisor(
            SupervisorConfig(
                start_engine=partial(_start_engine_process, settings),
                serve=partial(_serve_gateway, settings, shared),
                folder=Path(folder),
                listeners=listeners,
                stop_timeout_s=settings.drain_timeout_s + STOP_SLACK_S,
                on_ready=lambda engine: _console().print(_banner(settings, engine.info, port)),
                on_gateway_gone=partial(mark_process_dead, path=folder),
            )
        )
        signals: list[signal.Signals] = []

        def stop(number: signal.Signals) -> None:
            signals.append(number)
            cell.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        await cell.run()
    if len(signals) > 1:
        sys.exit(128 + signals[-1])


def _start_engine_process(settings: Settings) -> AbstractAsyncContextManager[api.Transcriber]:
    _set_up_logging(settings)
    return _start_engine(settings)


async def _serve_gateway(
    settings: Settings, shared: Shared, transcriber: api.Transcriber, seat: GatewaySlot, on_started: Callable[[], None]
) -> None:
    _set_up_logging(settings)
    shared = replace(shared, places=AdmissionCounter(seat.admission_counts, seat.number))
    app = build_app(settings, transcriber, shared=shared)
    await Server(app, settings, load_tls(settings), on_started).serve([seat.listener])


@cli.command()
@click.argument("file", type=click.File("rb"))
@click.option(
    "--format", "output", type=click.Choice(FORMATS), default="text", show_default=True, help="What to print."
)
@click.option("--language", help="A language code such as en. Default: detected.")
@click.option("--prompt", default="", help="Text the speech may follow on from, or names it may contain.")
@click.option(
    "--context/--no-context",
    default=False,
    show_default=True,
    help="Show the model the text so far. Slower, as windows then follow one another.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="How freely words are drawn. 0: the likeliest, and freer ones where these are doubtful.",
)
@settings_options(*ENGINE_SETTINGS)
def transcribe(
    file: IO[bytes],
    output: str,
    language: str | None,
    prompt: str,
    context: bool,
    temperature: float,
    **values: Any,
) -> None:
    """Transcribe FILE, of any format that FFmpeg reads, without a server."""
    settings = _settings(values)

    async def work() -> None:
        async with _start_engine(settings) as engine:
            await print_transcript(
                engine,
                file,
                output,
                settings.session_config,
                language,
                prompt,
                carries_context=context,
                temperature=temperature,
            )

    _run(work())


@cli.command()
@click.option("--url", help="Use the server at this address instead of starting one.")
@click.option(
    "--file", type=click.File("rb"), default=str(SAMPLE), help="Stream this recording instead of the bundled one."
)
@settings_options(*ENGINE_SETTINGS)
def demo(url: str | None, file: IO[bytes], **values: Any) -> None:
    """See live captions: starts a server, streams a recording at the pace of speech, shows what it hears."""
    settings = _settings({**values, "port": 0, "log_level": "warning"})
    name = "the bundled recording" if file.name == str(SAMPLE) else file.name

    async def work() -> None:
        if url:
            await run_demo(_console(), url, file, name)
            return
        console = _console()
        async with AsyncExitStack() as stack:
            listener = stack.enter_context(bind(settings))
            with console.status("Loading the model …"):
                engine = await stack.enter_async_context(_start_engine(settings))
            console.print(_banner(settings, engine.info, listener.getsockname()[1]))
            server = Server(build_app(settings, engine), settings)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            tasks.create_task(server.serve([listener]))
            try:
                await run_demo(console, f"ws://{settings.host}:{listener.getsockname()[1]}", file, name)
            finally:
                server.stop()

    _run(work())


@cli.command()
def models() -> None:
    """List models that can be named with --model."""
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "parameters", "about"):
        table.add_column(heading, justify="right" if heading == "parameters" else "left")
    for model in KNOWN_MODELS:
        table.add_row(model.name, f"{model.n_parameters_m} M", model.about)
    _console().print(table)
    _console().print(
        "\nNames with a slash are fetched from the Hugging Face hub once. A folder with any other Whisper checkpoint "
        "in the Hugging Face layout works as well."
    )


def _settings(values: dict[str, Any]) -> Settings:
    try:
        check_environment(os.environ)
        settings = Settings(**values)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    _set_up_logging(settings)
    return settings


def _set_up_logging(settings: Settings) -> None:
    process = " %(processName)s" if settings.gateways else ""
    logging.basicConfig(
        level=settings.log_level.upper(),
        format=f"%(asctime)s %(levelname)s{process} %(name)s: %(message)s",
        stream=sys.stderr,
    )
    # Every request a line of the library's own would drown ours.
    for library in ("httpx", "httpcore"):
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLogger().level))
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))


def _start_engine(settings: Settings) -> AbstractAsyncContextManager[api.Transcriber]:
    config = _engine_config(settings)
    # Imported here, because torch takes seconds that `--help` and a wrong flag should not cost.
    from engine.engine import Engine

    return Engine.start(config)


def _engine_config(settings: Settings) -> EngineConfig:
    try:
        return EngineConfig(
            model=settings.model,
            device=settings.device,  # type: ignore[arg-type]  # EngineConfig checks it
            dtype=settings.dtype,  # type: ignore[arg-type]  # EngineConfig checks it
            encoder_dtype=settings.encoder_dtype,  # type: ignore[arg-type]  # EngineConfig checks it
            audio_context=settings.audio_context,  # type: ignore[arg-type]  # EngineConfig checks it
            n_threads=settings.threads or None,
            n_slots=settings.slots or None,
            gpu_memory_fraction=settings.gpu_memory_fraction,
            kernels=settings.kernels,  # type: ignore[arg-type]  # EngineConfig checks it
            max_encode_batch=settings.max_encode_batch,
            max_wait_ms=settings.max_wait_ms,
        )
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end; what the user can mend is told in a line, and exits with 1."""
    try:
        uvloop.run(work)
    except* (SettingsError, EngineError, MediaError, SessionError, SupervisorError) as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise click.ClickException(str(error)) from None
    except* KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _banner(settings: Settings, info: api.ModelInfo, port: int) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    secure = "s" if settings.is_encrypted else ""
    lines = [
        f"[bold]tutti[/] {version('tutti-server')} · model [bold]{info.name}[/] "
        f"({info.n_parameters / 1e6:.1f} M parameters, {info.dtype} on {info.device}, {info.n_slots} slots)",
        f"  captions   http{secure}://{host}:{port}/",
        f"  live       ws{secure}://{host}:{port}/v1/stream",
        f"  files      http{secure}://{host}:{port}/v1/audio/transcriptions",
        f"  metrics    http{secure}://{host}:{port}/metrics",
    ]
    if info.name == EMBEDDED_MODEL:
        lines.append(
            "[dim]  The embedded demo model hears synthetic English voices only. For people, choose one of "
            "`tutti models`.[/]"
        )
    return "\n".join(lines)


def _console() -> Console:
    return Console(highlight=False, emoji=False)


def main() -> None:
    limit_openmp_spinning()
    cli(prog_name="tutti")
