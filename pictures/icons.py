"""Draws the captions page's icon as PNG files, for systems that install the page and know no SVG.

python -m pictures.icons --out app/static/icons
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from urllib.parse import quote

import click

from tests.browser.chromium import NAMES, open_page

ICON = Path(__file__).parents[1] / "app" / "static" / "icon.svg"
SIZES = (180, 192, 512)
"""In pixels: the home screen of iOS, and the two that Android and Chromium ask for."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--out", type=click.Path(path_type=Path), default=Path("app/static/icons"), show_default=True)
def main(out: Path) -> None:
    """Draw the icon without its round corners: each system cuts its own."""
    if not any(shutil.which(name) for name in NAMES):
        raise click.ClickException("Chromium is not installed: apt install chromium")
    out.mkdir(parents=True, exist_ok=True)
    asyncio.run(draw(out))
    click.echo(f"Written: {', '.join(str(out / name_of(size)) for size in SIZES)}")


def name_of(size: int) -> str:
    """The name of the file with this size."""
    return f"icon-{size}.png"


async def draw(out: Path) -> None:
    """Take a screenshot of the icon in each size."""
    square = ICON.read_text().replace(' rx="8"', "")
    with tempfile.TemporaryDirectory() as folder:
        async with open_page(Path(folder) / "profile", None) as page:
            for size in SIZES:
                sized = square.replace("<svg ", f'<svg width="{size}" height="{size}" ')
                await page.show_as(size, size)
                await page.open(f"data:image/svg+xml,{quote(sized)}")
                await page.screenshot(out / name_of(size))


if __name__ == "__main__":
    main()
