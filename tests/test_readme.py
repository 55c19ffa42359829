"""The Python example that a newcomer copies first runs as it is printed."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.clients.python.client_fakes import serve_answer

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
async def test_the_example_transcribes_a_file(tmp_path: Path, page: str) -> None:
    """It prints the time and the text of each segment."""
    (example,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(), re.DOTALL)
    recording = tmp_path / "app" / "assets" / "sample.flac"
    assert (REPOSITORY / recording.relative_to(tmp_path)).exists()
    recording.parent.mkdir(parents=True)
    recording.write_bytes(b"fLaC")
    async with asyncio.timeout(30), serve_answer() as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", example.replace("http://127.0.0.1:8000", server.url)),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    assert (out.decode(), err.decode()) == ("  0.12 Hello there.\n", "")
