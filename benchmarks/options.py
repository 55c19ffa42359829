"""How benchmarks are called: the kind of their commands, and the options that several of them share."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
EXTRAS = {"ctranslate2": "bench", "faster_whisper": "bench", "transformers": "bench", "ray": "ray"}
"""The extra that installs a package, by the name under which the package is imported."""


class Benchmark(click.Command):
    """A command that says in one line which extra installs a package that is missing."""

    def __init__(self, *arguments: Any, needs: Sequence[str] = (), **settings: Any) -> None:
        """`needs` names packages of `EXTRAS` without which the command cannot do anything."""
        super().__init__(*arguments, **settings)
        self._needs = needs

    def invoke(self, context: click.Context) -> Any:
        """Run the command.

        Raises:
            ClickException: a package is missing that an extra installs.
        """
        for package in self._needs:
            if importlib.util.find_spec(package) is None:
                raise missing_extra(package)
        try:
            return super().invoke(context)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in EXTRAS:
                raise
            raise missing_extra(package) from error


def missing_extra(package: str) -> click.ClickException:
    """The error of a command that needs a package which is not installed."""
    return click.ClickException(f"{package} is not installed: pip install -e '.[{EXTRAS[package]}]'")


def benchmark_command(needs: Sequence[str] = ()) -> Callable[[Callable[..., None]], Benchmark]:
    """Decorates the `main` of a benchmark that needs these packages of `EXTRAS`."""
    return click.command(cls=Benchmark, context_settings=CONTEXT_SETTINGS, needs=needs)


audio_option = click.option(
    "--audio",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder with recordings and a manifest.jsonl. Default: the bundled clips.",
)
kind_option = click.option(
    "--kind", default="synth-dialogue", show_default=True, help="Kind of the manifest's recordings to use."
)
match_option = click.option("--match", default="", help="Use only recordings whose file name contains this.")
manifest_option = click.option(
    "--manifest",
    type=click.Path(path_type=Path),
    help="A manifest, or its folder. Default: shared/audio beside the repository, or else the bundled clips.",
)
kinds_option = click.option(
    "--kinds", default="", help="Kinds, separated by commas. Default: without synthetic and non-native voices."
)
limit_option = click.option(
    "--limit", type=click.IntRange(min=1), help="Use at most this number of clips of each kind."
)
markdown_option = click.option("--markdown", is_flag=True, help="Print tables in Markdown.")
serve_arguments_argument = click.argument("serve_arguments", nargs=-1, type=click.UNPROCESSED)
"""Everything after `--`, for `tutti serve`."""


def json_option(name: str) -> Callable[[Command], Command]:
    """The option for the file that receives the result; Markdown tables are written beside it."""
    return click.option(
        "--json",
        "path",
        type=click.Path(path_type=Path),
        default=Path(f"build/bench/{name}.json"),
        show_default=True,
        help="File for the result. Its tables are written beside it in Markdown.",
    )


def parse_numbers(option: str, text: str) -> list[int]:
    """Parse a list of positive numbers such as "1,2,4".

    Raises:
        BadParameter: the text is not such a list.
    """
    try:
        numbers = [int(each) for each in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(f"expected numbers such as 1,2,4, got {text!r}", param_hint=option)
    return numbers
