"""The Python example that a newcomer copies first runs as it is printed."""

import asyncio
import re
import sys
import wave
from pathlib import Path

import pytest

from tests.clients.python.client_fakes import serve_script
from tests.clients.python.test_client_readme import converse

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
async def test_the_example_transcribes_a_file(tmp_path: Path, page: str) -> None:
    """It prints the time and the text of each segment."""
    (example,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(), re.DOTALL)
    with wave.open(str(tmp_path / "speech.wav"), "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(16000)
        writer.writeframes(bytes(3200))
    async with asyncio.timeout(30), serve_script(converse) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", example.replace("ws://127.0.0.1:8000", server.url)),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    assert (out.decode(), err.decode()) == ("  0.12 Hello there.\n", "")
