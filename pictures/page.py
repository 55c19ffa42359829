"""Takes a screenshot of the captions page while the real server captions the bundled recording.

python -m pictures.page --out docs/images/page.png
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import click
import numpy as np

from app.cli.demo import SAMPLE
from app.main import Server, bind, build_app
from app.media.file_decoder import decode_file
from app.service.settings import Settings
from engine.api import SAMPLE_RATE
from engine.config import EngineConfig
from engine.engine import Engine
from tests.browser.chromium import NAMES, open_page, write_wav

WIDTH, HEIGHT = 960, 560
"""Size of the page in CSS pixels: a small window on a laptop."""
LEAD_S = 1.0
"""Silence before the recording: the microphone begins before the page has connected."""
N_FINALS = 3
"""The screenshot is taken when this many captions are final and another one is growing."""
MIN_LIVE_WORDS = 4
TIMEOUT_S = 60
MAX_BYTES = 200_000
"""A README loads at once."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--out", type=click.Path(path_type=Path), default=Path("docs/images/page.png"), show_default=True)
@click.option("--dark", is_flag=True, help="Take it in the dark colour scheme.")
def main(out: Path, dark: bool) -> None:
    """Caption the bundled recording in a headless Chromium, and take a screenshot. Let nothing else run meanwhile."""
    if not any(shutil.which(name) for name in NAMES):
        raise click.ClickException("Chromium is not installed: apt install chromium")
    out.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(take_screenshot(out, dark=dark))
    n_bytes = out.stat().st_size
    if n_bytes > MAX_BYTES:
        raise click.ClickException(f"expected at most {MAX_BYTES} bytes, got {n_bytes}")
    click.echo(f"Written: {out}, {n_bytes / 1000:.0f} kB")


async def take_screenshot(out: Path, *, dark: bool) -> None:
    """Start the server and the browser, wait for captions, and keep what the page shows then."""
    with tempfile.TemporaryDirectory() as folder:
        microphone = await _microphone(Path(folder) / "microphone.wav")
        async with _page_server() as url, open_page(Path(folder) / "profile", microphone) as page:
            await page.show_as(WIDTH, HEIGHT, dark=dark)
            await page.open(url)
            await page.click("#toggle")
            await page.wait_for(
                f"document.querySelectorAll('#finals .line').length >= {N_FINALS} && "
                f"document.querySelector('#live').innerText.split(' ').length >= {MIN_LIVE_WORDS}",
                TIMEOUT_S,
            )
            await page.drawn()
            await page.screenshot(out)


async def _microphone(path: Path) -> Path:
    """The bundled recording as a WAV file, with silence before it."""
    with SAMPLE.open("rb") as file:
        async with aclosing(decode_file(file)) as pieces:
            recording = [piece async for piece in pieces]
    lead = np.zeros(round(LEAD_S * SAMPLE_RATE), dtype=np.float32)
    return write_wav(path, np.concatenate([lead, *recording]), SAMPLE_RATE)


@asynccontextmanager
async def _page_server() -> AsyncIterator[str]:
    """The address of the real service, with the embedded model, on a free port."""
    settings = Settings(port=0, log_level="warning")
    with bind(settings) as listener:
        async with Engine.start(EngineConfig()) as engine, asyncio.TaskGroup() as tasks:
            server = Server(build_app(settings, engine), settings)
            tasks.create_task(server.serve([listener]))
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            server.stop()


if __name__ == "__main__":
    main()
