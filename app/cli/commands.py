"""The commands of `tutti` and their options.

What a command runs is imported in its function, so that `--version`, `--help` and a wrong flag answer at once:
`tests/app/cli/test_imports.py`.
"""

import math
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import Field
from typing import IO, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from tutti_server.app.cli.output_errors import explaining_output_errors
from tutti_server.app.errors import SettingsError
from tutti_server.app.files.formats import FORMATS, SUBTITLES, WITH_WORDS, Layout
from tutti_server.app.files.subtitles import LAYOUT_LIMITS, CueLayout
from tutti_server.app.server.plugins import (
    check_environment,
    installed_plugins,
    make_settings,
    plugin_settings,
    what_became_of,
)
from tutti_server.app.service.settings import ENV_PREFIX, Settings, own_settings
from tutti_server.app.version import VERSION
from tutti_server.engine import api
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.process_environment import prepare_environment

ENGINE_SETTINGS = (
    "model",
    "device",
    "dtype",
    "encoder_dtype",
    "cross_cache",
    "audio_context",
    "kernels",
    "threads",
    "slots",
    "max_encode_batch",
)
"""The settings of commands that run an engine but no public server."""

ENGINE_CHOICES = {
    name: get_args(hint) for name, hint in get_type_hints(EngineConfig).items() if get_origin(hint) is Literal
}
"""The values of those settings of the engine that are one of a few words."""

OLD_VARIABLES = {"trusted_proxies": ("FORWARDED_ALLOW_IPS",)}
"""Variables of version 0.1 that settings have besides their own. The next version drops them."""

PLUGIN_OPTIONS = "tutti_server.app.cli.plugin_options"
"""The key under which the data of a command's call holds the options of plug-ins."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def settings_options(*names: str) -> Callable[[_Function], _Function]:
    """Add a flag and an environment variable for each of these settings of the service; for all if none is named."""

    def decorate(function: _Function) -> _Function:
        for setting in reversed(own_settings()):
            if not names or setting.name in names:
                declaration, attributes = _option(setting)
                function = click.option(declaration, **attributes)(function)
        return function

    return decorate


def _option(setting: Field[Any]) -> tuple[str, dict[str, Any]]:
    """The flag of a setting, and the attributes of its option."""
    flag = setting.name.replace("_", "-")
    if setting.metadata["is_list"]:
        several = {"type": _Listed(), "multiple": True, "callback": _joined, "default": (setting.default,)}
    else:
        several = {}
    return f"--{flag}/--no-{flag}" if setting.default is True else f"--{flag}", {
        "type": click.Choice(values) if (values := choices(setting)) else setting.type,
        "is_flag": setting.type is bool,
        "default": setting.default,
        "envvar": [ENV_PREFIX + setting.name.upper(), *OLD_VARIABLES.get(setting.name, ())],
        "show_envvar": True,
        "show_default": setting.default is True or (setting.type is not bool and setting.default != ""),
        "help": setting.metadata["help"],
        **several,
    }


class _Listed(click.types.StringParamType):
    """A text of a flag that may be given more than once. Its variable has commas between the texts."""

    envvar_list_splitter = ","


def _joined(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str:
    return ",".join(values)


def choices(setting: Field[Any]) -> tuple[str, ...]:
    """The values of a setting that is one of a few words; empty for every other setting."""
    return setting.metadata["choices"] or ENGINE_CHOICES.get(setting.name, ())


class _SettingsCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except SettingsError as error:
            raise click.ClickException(str(error)) from None
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").removeprefix("no-").replace("-", "_")
            if not (reason := what_became_of(name)):
                raise
            raise click.UsageError(f"No such option '{error.option_name}'{reason}.", ctx) from None


class _ServeCommand(_SettingsCommand):
    """A command whose options are also those of plug-ins, which are looked for when the command is used."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if PLUGIN_OPTIONS not in ctx.meta:
            ctx.meta[PLUGIN_OPTIONS] = [
                click.Option([declaration], **attributes) for declaration, attributes in map(_option, plugin_settings())
            ]
        *own, help_option = super().get_params(ctx)
        return [*own, *ctx.meta[PLUGIN_OPTIONS], help_option]


class _Commands(click.Group):
    """The commands of `tutti`, and those of plug-ins, which are looked for when one of them may be meant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_plugin_commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or _plugin_commands().get(cmd_name)


def _plugin_commands() -> dict[str, click.Command]:
    try:
        return {each.name or "": each for plugin in installed_plugins() for each in plugin.commands()}
    except SettingsError as error:
        raise click.ClickException(str(error)) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, prog_name="tutti")
def cli() -> None:
    """Live transcription of many voices at once: a streaming service with one batched Whisper model.

    Start with `tutti demo`, then `tutti serve`, or `tutti transcribe FILE`.
    """


@cli.command(cls=_ServeCommand)
@settings_options()
def serve(**values: Any) -> None:
    """Run the server.

    It serves live sessions, file transcription and a page with live captions, until Ctrl-C. Every option is also an
    environment variable.
    """
    settings = _settings(values, with_plugins=True)
    from tutti_server.app.cli import processes
    from tutti_server.app.cli.running import fetch_all, run

    settings = fetch_all(settings)
    run(processes.serve(settings))


class _FiniteRange(click.FloatRange):
    """Numbers from a range. To click, NaN is in every range, and infinity in one without an upper end."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a finite number, got {value!r}", param, ctx)
        return number


class _FormatChoice(click.Choice[str]):
    """The formats of transcripts. `text` is the older name of `txt`."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert("txt" if value == "text" else value, param, ctx)


@cli.command(cls=_SettingsCommand)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option(
    "-f",
    "--format",
    type=_FormatChoice(FORMATS),
    default="txt",
    show_default=True,
    help="What to write. txt: a line for each utterance. srt, vtt: subtitles. tsv: a table with times in "
    "milliseconds. json: everything. segments: lines with times.",
)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    help="Write to this file. If it is a folder, or ends with /: a file for each recording in it, such as talk.srt. "
    "Existing files are replaced. Default: the standard output.",
)
@click.option("--beside", is_flag=True, help="Write a file beside each recording: talk.srt beside talk.mp3.")
@click.option("--words", is_flag=True, help="List every word with its times, in the formats tsv and json.")
@click.option(
    "--channels",
    is_flag=True,
    help="Transcribe each channel on its own and name it with its text, such as the two sides of a call. Channels are "
    "numbered from 0: channel 0 is the left one. Default: all channels are mixed into one.",
)
@click.option(
    "--track",
    metavar="TRACK",
    help="The audio track of a film: a number from 0, or a language. Default: the one that the file marks as its "
    "default, else the first; the others are named.",
)
@click.option(
    "--tracks",
    type=click.Choice(["all"]),
    help="all: transcribe every audio track of each film on its own, to a file such as film.track-1.srt.",
)
@click.option("--max-line-width", type=click.IntRange(10, 1000), help="Subtitles: columns of a line. Default: 42.")
@click.option("--max-line-count", type=click.IntRange(1, 20), help="Subtitles: lines of a cue. Default: 2.")
@click.option("--max-words-per-line", type=click.IntRange(1, 1000), help="Subtitles: words of a line. Default: any.")
@click.option(
    "--task",
    type=click.Choice(get_args(api.Task)),
    default="transcribe",
    show_default=True,
    help="transcribe: text in the language of the speech. translate: English text, with a model that can translate.",
)
@click.option("--language", help="A language, such as en, en-US or English. Default: the model detects the language.")
@click.option("--prompt", default="", help="Text that comes before the speech, or names that it may contain.")
@click.option(
    "--context/--no-context",
    default=False,
    show_default=True,
    help="Show the model the text before each window. Slower, because windows are then decoded one after another.",
)
@click.option(
    "--temperature",
    type=_FiniteRange(0, 1),
    default=0.0,
    show_default=True,
    help="Sampling temperature. 0: the likeliest words, with higher temperatures only where the text is doubtful.",
)
@settings_options("beam_size", *ENGINE_SETTINGS)
def transcribe(
    inputs: tuple[str, ...],
    format: str,
    output: str | None,
    beside: bool,
    words: bool,
    channels: bool,
    track: str | None,
    tracks: str | None,
    task: api.Task,
    language: str | None,
    prompt: str,
    context: bool,
    temperature: float,
    **values: Any,
) -> None:
    """Transcribe recordings without a server.

    An INPUT is an audio or video file in any format that FFmpeg decodes, - for the standard input, or a folder: all
    audio and video files in it and in its folders. Several recordings are transcribed at the same time. One that
    fails is reported, and the others go on; the exit status is then 1.

    \b
    tutti transcribe talk.mp3
    tutti transcribe talk.mp4 --format srt -o talk.srt
    tutti transcribe recordings/ --format vtt --beside
    tutti transcribe call.wav --channels --format json --words
    """  # noqa: D301  # click asks for a real backspace before lines that it must not join
    sizes = {name: values.pop(name) for name in LAYOUT_LIMITS}
    chosen = {name: size for name, size in sizes.items() if size is not None}
    for name in chosen if format not in SUBTITLES else ():
        option = "--" + name.replace("_", "-")
        raise click.UsageError(f"{option}: expected --format {' or '.join(SUBTITLES)} with it, got {format}")
    layout = Layout(format=format, has_words=words, has_channels=channels, cues=CueLayout(**chosen))
    if words and format not in WITH_WORDS:
        raise click.UsageError(f"--words: expected --format {' or '.join(WITH_WORDS)} with it, got {format}")
    if beside and output is not None:
        raise click.UsageError("--beside: expected no --output with it, as each says where the files are written")
    if track is not None and tracks is not None:
        raise click.UsageError("--tracks: expected no --track with it, as each names what is transcribed")
    try:
        prompt.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"--prompt: expected text in UTF-8, got {prompt!r}") from None
    settings = _settings(values)
    from tutti_server.app.cli import processes
    from tutti_server.app.cli.recordings import Destination, find_recordings
    from tutti_server.app.cli.running import fetch_all, run
    from tutti_server.app.cli.transcribe import Job, all_tracks, prepare, transcribe_all
    from tutti_server.app.files.transcription_options import TranscriptionOptions

    options = TranscriptionOptions(
        language=language, task=task, prompt=prompt, temperature=temperature, carries_context=context
    )
    job = Job(config=settings.session_config, options=options, layout=layout, track=track)
    found, problems = find_recordings(inputs)
    if tracks == "all":
        found, unknown = all_tracks(found)
        problems += unknown
    try:
        outputs = Destination(output, beside).paths(found, layout)
    except OSError as error:
        raise click.UsageError(f"--output: {error.filename}: {error.strerror}") from None
    ready, unreadable = prepare(found, outputs, track)
    problems += unreadable
    for problem in problems:
        click.echo(f"Error: {problem}", err=True)
    n_failed = len(problems)

    async def work() -> None:
        nonlocal n_failed
        async with processes.loading_engine(settings) as engine:
            n_failed += await transcribe_all(engine, ready, job)

    if ready:
        settings = fetch_all(settings)
        run(work())
    if n_failed:
        sys.exit(1)


@cli.command(cls=_SettingsCommand)
@click.option("--url", help="Use the server at this address, such as wss://example.org. Default: start one.")
@click.option("--api-key", envvar="TUTTI_API_KEY", show_envvar=True, help="The key that the server at --url asks for.")
@click.option("--file", type=click.File("rb"), help="Stream this recording. Default: two samples, English and French.")
@settings_options("beam_size", *ENGINE_SETTINGS)
@click.pass_context
def demo(
    context: click.Context, /, url: str | None, api_key: str | None, file: IO[bytes] | None, **values: Any
) -> None:
    """Show live captions of a recording.

    The command starts a server and streams the recording to it at the pace of speech; the server detects the language.
    Without --file, a person reads English, and then another one French if the model knows it. Ctrl-C ends it.
    """
    if not url and context.get_parameter_source("api_key") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--api-key: expected --url with it, as the server of the demo asks for no key")
    settings = _settings({**values, "port": 0, "log_level": "warning"})
    from tutti_server.app.cli import processes, terminal
    from tutti_server.app.cli.demo import known_samples, run_demo
    from tutti_server.app.cli.running import fetch_all, run

    out = terminal.console()
    if not url:
        settings = fetch_all(settings)

    async def stream(address: str, key: str | None) -> None:
        with ExitStack() as stack:
            opened = [file] if file else [path.open("rb") for path in await known_samples(address)]
            files = [stack.enter_context(each) for each in opened]
            await run_demo(out, address, files, file.name if file else "the bundled recordings", key)

    async def work() -> None:
        if url:
            await stream(url, api_key)
            return
        async with processes.local_server(settings, out) as address:
            await stream(address, None)

    run(work())


@cli.command(cls=_SettingsCommand)
@settings_options(*ENGINE_SETTINGS)
def warm(**values: Any) -> None:
    """Prepare this machine for a model, so that a server with the same options starts soon.

    The command fetches the model, compiles the kernels of the GPU if there is one, transcribes a second of silence,
    and ends. What it has fetched and compiled stays in caches on the disk. Run it when a machine or an image is made.
    """
    settings = _settings(values)
    from tutti_server.app.cli.running import fetch_all, run
    from tutti_server.app.cli.terminal import console
    from tutti_server.app.cli.warm import prepare_engines

    settings = fetch_all(settings)
    run(prepare_engines(settings, console()))


@cli.command()
@click.option("--model", required=True, help="The original: a folder, or a name on the Hugging Face hub.")
@click.option("--audio", required=True, metavar="FOLDER", help="Recordings to train on, without transcripts.")
@click.option("--output", required=True, metavar="FOLDER", help="Where the adapted model is written.")
@click.option("--device", type=click.Choice(ENGINE_CHOICES["device"]), default="auto", show_default=True)
@click.option("--minutes", type=_FiniteRange(min=0, min_open=True), help="How long to train. Default: 5.")
@click.option("--steps", type=click.IntRange(min=1), help="How many steps to train, in place of --minutes.")
@click.option("--batch", type=click.IntRange(min=1), default=64, show_default=True, help="Clips of a step.")
@click.option(
    "--learning-rate",
    type=_FiniteRange(min=0, min_open=True),
    default=4e-5,
    show_default=True,
    help="The highest learning rate.",
)
@click.option(
    "--held-out",
    type=_FiniteRange(0, 0.5, min_open=True),
    default=0.1,
    show_default=True,
    help="The share of the audio that is not trained on: the adapted model is compared with the original on it.",
)
@click.option("--held-out-audio", metavar="FOLDER", help="Recordings for that comparison, in place of --held-out.")
@click.option(
    "--transcripts",
    metavar="FILE",
    help="JSON lines with file and text, of held-back recordings of up to 30 s: word errors are compared then.",
)
@click.option("--languages", default="", help="Codes of the languages that are spoken, such as en,de. Default: any.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Chooses the clips.")
@click.option("--resume", is_flag=True, help="Go on with the run that was interrupted in the output folder.")
def adapt(minutes: float | None, steps: int | None, **values: Any) -> None:
    """Make a model able to use windows as long as their audio, which are faster than windows of 30 s.

    The model is trained until it reads a window that ends half a second after its audio as the original reads the same
    audio in 30 s. It is written if it is as good as the original on audio that is held back. A GPU is needed for all
    but the smallest models. The state is kept each minute: after Ctrl-C, --resume goes on.

    \b
    tutti adapt --model openai/whisper-base --audio recordings/ --output whisper-base-short
    tutti serve --model ./whisper-base-short
    """  # noqa: D301  # click asks for a real backspace before lines that it must not join
    if minutes is not None and steps is not None:
        raise click.UsageError("--steps: expected no --minutes with it, as each says how long to train")
    from tutti_server.app.cli.adapt import AdaptOptions, run_adaptation

    run_adaptation(AdaptOptions(minutes=5.0 if minutes is None else minutes, steps=steps, **values))


@cli.command()
def models() -> None:
    """List the models that --model knows by name."""
    from tutti_server.app.cli import terminal

    terminal.print_models(terminal.console())


def _settings(values: dict[str, Any], *, with_plugins: bool = False) -> Settings:
    """Settings from flags and the environment, as click has read them. Logging works from here on."""
    try:
        check_environment(os.environ)
        settings = make_settings(values) if with_plugins else Settings(**values)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    # Before the imports that take seconds, or minutes where the disk is cold and the machine busy.
    if with_plugins or sys.stderr.isatty():
        click.echo(f"tutti {VERSION} · loading …", err=True)
    from tutti_server.app.cli import processes

    processes.set_up_logging(settings)
    return settings


def main() -> None:
    """Run the command line."""
    prepare_environment()
    with explaining_output_errors():
        cli(prog_name="tutti")
