"""Takes screenshots of the pages while the real server captions the bundled recordings, or makes the record of a call.

python -m pictures.page --out docs/images
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import click
import numpy as np

from pictures.call import SIDES, call_in_base64
from pictures.views import VIEWS, View
from tests.browser import exact_microphone
from tests.browser.chromium import NAMES, Page, open_page, write_wav
from tests.browser.fake_calls import drop
from tutti_server.app.cli.demo import PAUSE_S, SAMPLES
from tutti_server.app.media.file_decoder import decode_pieces
from tutti_server.app.media.pcm import Samples
from tutti_server.app.server.main import Server, bind, build_app
from tutti_server.app.service.settings import Settings
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

N_FINALS = 2
"""A screenshot is taken when this many captions are final and another one is growing."""
MIN_LIVE_WORDS = 4
TIMEOUT_S = 60
MAX_BYTES = 200_000
"""The README loads at once."""
PAGE_SHOWS = (
    f"document.querySelectorAll('#finals .line').length >= {N_FINALS} && "
    f"document.querySelector('#live').innerText.split(' ').length >= {MIN_LIVE_WORDS} && "
    "document.querySelector('#live .tail').textContent !== ''"
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("docs/images"), show_default=True)
@click.option(
    "--view", "names", multiple=True, type=click.Choice([view.name for view in VIEWS]), help="Default: all of them."
)
@click.option("--model", default=EngineConfig().model, envvar="TUTTI_MODEL", show_default=True, show_envvar=True)
def main(out: Path, names: Sequence[str], model: str) -> None:
    """Caption the bundled recordings in a headless Chromium, and take screenshots. Let nothing else run meanwhile."""
    if not any(shutil.which(name) for name in NAMES):
        raise click.ClickException("Chromium is not installed: apt install chromium")
    out.mkdir(parents=True, exist_ok=True)
    for view in VIEWS:
        if names and view.name not in names:
            continue
        path = out / view.file
        asyncio.run(take_screenshot(view, path, model=model))
        n_bytes = path.stat().st_size
        if n_bytes > MAX_BYTES:
            raise click.ClickException(f"{path}: expected at most {MAX_BYTES} bytes, got {n_bytes}")
        click.echo(f"Written: {path}, {n_bytes / 1000:.0f} kB")


async def take_screenshot(
    view: View, out: Path, *, model: str = EngineConfig().model, recordings: Iterable[Path] = SAMPLES.values()
) -> None:
    """Start the server and the browser, wait for captions, and keep what the view shows then."""
    recording = _joined(recordings)
    with tempfile.TemporaryDirectory() as folder:
        microphone = write_wav(Path(folder) / "silence.wav", np.zeros(SAMPLE_RATE, np.float32), SAMPLE_RATE)
        async with _page_server(model) as url, open_page(Path(folder) / "profile", microphone) as page:
            await page.show_as(view.width, view.height, scale=view.scale)
            await _caption(page, url, view, recording, out)


async def _caption(page: Page, url: str, view: View, recording: Samples, out: Path) -> None:
    """Show captions or the record of a call in the view, and take its picture."""
    if view.call_at_s is not None:
        await _record_call(page, url, view, out)
        return
    await exact_microphone.play(page, recording)
    await page.open(url)
    await page.click("#toggle")
    await page.wait_for(PAGE_SHOWS, TIMEOUT_S)
    await page.drawn()
    await page.screenshot(out)


async def _record_call(page: Page, url: str, view: View, out: Path) -> None:
    """Take the picture of a call's record, which the server makes of its recording."""
    await page.open(f"{url}/calls")
    await drop(page, ("call.wav", "audio/wav", call_in_base64()))
    await page.wait_for("document.activeElement.id === 'channel-names'")
    await page.type_text(", ".join(SIDES))
    await page.press_enter()
    await page.wait_for("document.body.dataset.state === 'open'", TIMEOUT_S)
    # Without a frame around the title, which has the focus.
    await page.evaluate(f"""((slider) => {{
        document.activeElement.blur();
        slider.value = '{view.call_at_s}';
        slider.dispatchEvent(new Event('input'));
    }})(document.querySelector('#position'))""")
    await page.drawn()
    await page.screenshot(out)


def _joined(recordings: Iterable[Path]) -> Samples:
    """The recordings, with a pause after each."""
    parts: list[Samples] = []
    for path in recordings:
        with path.open("rb") as file:
            parts += decode_pieces(file, None)
        parts.append(np.zeros(round(PAUSE_S * SAMPLE_RATE), np.float32))
    return np.concatenate(parts)


@asynccontextmanager
async def _page_server(model: str) -> AsyncIterator[str]:
    """The address of the real service, with this model, on a free port."""
    settings = Settings(port=0, log_level="warning")
    with bind(settings) as listener:
        async with Engine.start(EngineConfig(model=model)) as engine, asyncio.TaskGroup() as tasks:
            server = Server(build_app(settings, engine), settings)
            tasks.create_task(server.serve([listener]))
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.stop()


if __name__ == "__main__":
    main()
