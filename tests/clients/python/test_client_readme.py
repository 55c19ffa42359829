"""The examples of the client's README run as they are printed."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.clients.python.client_fakes import INTERIM, SEGMENT, STOPPED, UTTERANCE, Peer, serve_answer, serve_script

README = Path(__file__).parents[3] / "clients" / "python" / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
OUTPUTS = ["0.12 Hello there.\n", "0.12 Hello there.\n", "Hello| th\nHello there.|\nHello there.\n", ""]


async def converse(peer: Peer) -> None:
    """Answer flushes, and send one sentence as soon as there is audio."""
    await peer.begin()
    await peer.receive()
    await peer.send(INTERIM, SEGMENT, UTTERANCE)
    while True:
        message = await peer.receive()
        if isinstance(message, dict) and message["type"] == "flush":
            await peer.send({"type": "flushed", "id": message["id"]})
        elif isinstance(message, dict) and message["type"] == "stop":
            return await peer.send(STOPPED)


@pytest.mark.parametrize(("example", "output"), [*zip(EXAMPLES, OUTPUTS, strict=True)])
async def test_examples_run(tmp_path: Path, example: str, output: str) -> None:
    """Each example ends by itself and writes the expected output."""
    (tmp_path / "talk.mp3").write_bytes(b"ID3")
    async with asyncio.timeout(30), serve_script(converse) as live, serve_answer() as files:
        example = example.replace("http://127.0.0.1:8000", files.url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", example.replace("ws://127.0.0.1:8000", live.url)),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    assert (out.decode(), err.decode()) == (output, "")
