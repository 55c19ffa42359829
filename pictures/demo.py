"""Records `tutti demo`, the real server with its default model or TUTTI_MODEL, as an animated SVG.

python -m pictures.demo --out docs/images/demo.svg
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import click

from pictures.animation import animated
from pictures.terminal import PLAIN, RecordingError, Run, Shown, run, screens, starting_with

COLUMNS = 102
"""Wide enough for most captions of the bundled recordings on two lines."""
ROWS = 40
"""More than the demo shows, so that nothing scrolls."""
HOLD_S = 5.0
"""Seconds the last screen stays, to read the figures."""
MAX_BYTES = 300_000
"""A README loads at once."""
PROMPT: tuple[Run, ...] = (Run(0, "$ make demo", PLAIN),)
"""The command as a reader types it; `make` starts `tutti demo`."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--out", type=click.Path(path_type=Path), default=Path("docs/images/demo.svg"), show_default=True)
def main(out: Path) -> None:
    """Run the demo, and write what the terminal showed as an animated SVG. Let nothing else run meanwhile."""
    program = Path(sys.executable).with_name("tutti")
    try:
        shown = screens(asyncio.run(run([str(program), "demo"], COLUMNS, ROWS)))
        # Loading the model takes some seconds in which nothing happens.
        shown = with_prompt(starting_with(shown, "Streaming"))
    except RecordingError as error:
        raise click.ClickException(str(error)) from error
    picture = animated(shown, title="tutti", columns=COLUMNS, hold_s=HOLD_S)
    if len(picture.encode()) > MAX_BYTES:
        raise click.ClickException(f"expected at most {MAX_BYTES} bytes, got {len(picture.encode())}")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(picture)
    click.echo(f"Written: {out}, {len(picture.encode()) / 1000:.0f} kB")


def with_prompt(shown: list[Shown]) -> list[Shown]:
    """The screens below the command that started them."""
    return [replace(screen, lines=(PROMPT, (), *screen.lines)) for screen in shown]


if __name__ == "__main__":
    main()
