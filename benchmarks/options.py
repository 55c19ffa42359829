"""How benchmarks are called: the kind of their commands, and the options that several of them share."""

import importlib.util
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
EXTRAS = {"ctranslate2": "bench", "faster_whisper": "bench", "transformers": "bench", "ray": "ray"}
"""The extra that installs a package, by the name under which the package is imported."""


def benchmark_command(needs: Sequence[str] = ()) -> Callable[[Callable[..., None]], click.Command]:
    """Decorates the `main` of a benchmark. `needs` names packages of `EXTRAS` without which it cannot do anything."""

    def decorate(main: Callable[..., None]) -> click.Command:
        @wraps(main)
        def checked(**options: Any) -> None:
            for package in needs:
                if importlib.util.find_spec(package) is None:
                    raise missing_extra(package)
            main(**options)

        return click.command(context_settings=CONTEXT_SETTINGS)(checked)

    return decorate


def missing_extra(package: str) -> click.ClickException:
    return click.ClickException(f"{package} is not installed: pip install -e '.[{EXTRAS[package]}]'")


def result_options(name: str) -> Callable[[Command], Command]:
    """The options of `report.show`: the file for the result, as `path`, and whether tables are printed in Markdown."""

    def decorate(command: Command) -> Command:
        markdown = click.option("--markdown", is_flag=True, help="Print tables in Markdown.")
        json = click.option(
            "--json",
            "path",
            type=click.Path(path_type=Path),
            default=Path(f"build/bench/{name}.json"),
            show_default=True,
            help="File for the result. Its tables are written beside it in Markdown.",
        )
        return json(markdown(command))

    return decorate


audio_option = click.option(
    "--audio",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder with recordings and a manifest.jsonl, of which synthetic dialogues are used. Default: the bundled "
    "clips.",
)
manifest_option = click.option(
    "--manifest",
    type=click.Path(path_type=Path),
    help="A manifest, or its folder. Default: shared/audio beside the repository, or else the bundled clips.",
)
kinds_option = click.option(
    "--kinds", default="", help="Kinds, separated by commas. Default: without synthetic and non-native voices."
)
serve_arguments_argument = click.argument("serve_arguments", nargs=-1, type=click.UNPROCESSED)
"""Everything after `--`, for `tutti serve`."""


def parse_numbers(option: str, text: str) -> list[int]:
    """Parse a list of positive numbers such as "1,2,4"."""
    try:
        numbers = [int(each) for each in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(f"expected numbers such as 1,2,4, got {text!r}", param_hint=option)
    return numbers
