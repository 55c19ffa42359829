"""The commands of `tutti` and their options.

What a command runs is imported in its function, so that `--version`, `--help` and a wrong flag answer at once:
`tests/app/cli/test_imports.py`.
"""

import os
from collections.abc import Callable
from dataclasses import fields
from typing import IO, Any, TypeVar

import click
from click.core import ParameterSource

from app.cli.output_errors import explaining_output_errors
from app.errors import SettingsError
from app.service.settings import ENV_PREFIX, Settings, check_environment
from app.version import VERSION
from engine.process_environment import limit_openmp_spinning

ENGINE_SETTINGS = (
    "model",
    "device",
    "dtype",
    "encoder_dtype",
    "audio_context",
    "kernels",
    "threads",
    "slots",
    "gpu_memory_fraction",
    "max_encode_batch",
    "max_wait_ms",
)
"""The settings of commands that run an engine but no public server."""

OUTPUT_FORMATS = ("text", "segments", "json", "srt", "vtt")
"""What `tutti transcribe` can print."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def settings_options(*names: str) -> Callable[[_Function], _Function]:
    """Add a flag and an environment variable for each of these settings; for all settings if none is named."""

    def decorate(function: _Function) -> _Function:
        for setting in reversed(fields(Settings)):
            if names and setting.name not in names:
                continue
            function = click.option(
                "--" + setting.name.replace("_", "-"),
                type=click.Choice(choices) if (choices := setting.metadata["choices"]) else setting.type,
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
@click.version_option(VERSION, prog_name="tutti")
def cli() -> None:
    """Live transcription of many voices at once: a streaming service with one batched Whisper model.

    Start with `tutti demo`, then `tutti serve`.
    """


@cli.command()
@settings_options()
def serve(**values: Any) -> None:
    """Run the service: live sessions, file transcription, and a page with live captions."""
    settings = _settings(values)
    from app.cli import processes
    from app.cli.running import run

    processes.fetch_model(settings)
    run(processes.serve(settings))


@cli.command()
@click.argument("file", type=click.File("rb"))
@click.option(
    "--format", "output", type=click.Choice(OUTPUT_FORMATS), default="text", show_default=True, help="What to print."
)
@click.option("--language", help="A language code such as en. Default: the model detects the language.")
@click.option("--prompt", default="", help="Text that comes before the speech, or names that it may contain.")
@click.option(
    "--context/--no-context",
    default=False,
    show_default=True,
    help="Show the model the text before each window. Slower, because windows are then decoded one after another.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Sampling temperature. 0: the likeliest words, with higher temperatures only where the text is doubtful.",
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
    """Transcribe FILE without a server. FILE may have any format that FFmpeg decodes."""
    settings = _settings(values)
    from app.cli import processes, terminal
    from app.cli.running import run
    from app.files.transcription import TranscriptionOptions

    processes.fetch_model(settings)
    options = TranscriptionOptions(
        language=language,
        prompt=prompt,
        temperature=temperature,
        carries_context=context,
    )

    async def work() -> None:
        async with processes.start_engine(settings) as engine:
            await terminal.print_transcript(engine, file, output, settings.session_config, options)

    run(work())


@cli.command()
@click.option("--url", help="Use the server at this address, such as wss://example.org. Default: start one.")
@click.option("--api-key", envvar="TUTTI_API_KEY", show_envvar=True, help="The key that the server at --url asks for.")
@click.option("--file", type=click.File("rb"), help="Stream this recording. Default: a sample.")
@settings_options(*ENGINE_SETTINGS)
@click.pass_context
def demo(
    context: click.Context, /, url: str | None, api_key: str | None, file: IO[bytes] | None, **values: Any
) -> None:
    """Show live captions: start a server and stream a recording to it at the pace of speech. Ctrl-C ends it."""
    if not url and context.get_parameter_source("api_key") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--api-key: expected --url with it, as the server of the demo asks for no key")
    settings = _settings({**values, "port": 0, "log_level": "warning"})
    from app.cli import processes, terminal
    from app.cli.demo import SAMPLE, run_demo
    from app.cli.running import run

    name = file.name if file else "the bundled recording"
    out = terminal.console()
    if not url:
        processes.fetch_model(settings)

    async def work() -> None:
        with file or SAMPLE.open("rb") as recording:
            if url:
                await run_demo(out, url, recording, name, api_key)
                return
            async with processes.local_server(settings, out) as address:
                await run_demo(out, address, recording, name)

    run(work())


@cli.command()
def models() -> None:
    """List the models that --model knows by name."""
    from app.cli import terminal

    terminal.print_models(terminal.console())


def _settings(values: dict[str, Any]) -> Settings:
    """Settings from flags and the environment, as click has read them. Logging works from here on."""
    try:
        check_environment(os.environ)
        settings = Settings(**values)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    from app.cli import processes

    processes.set_up_logging(settings)
    return settings


def main() -> None:
    """Run the command line."""
    limit_openmp_spinning()
    with explaining_output_errors():
        cli(prog_name="tutti")
