"""The screen of examples/react-native beside a server, with fakes of React, React Native and the recorder."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from tests.app.conftest import running
from tests.fakes import FakeTranscriber
from tests.node import require_node
from tests.recordings import TEXTS, read, words
from tests.small_model import SMALL_MODEL, small_settings
from tutti_server.app.server.main import Server, bind, build_app
from tutti_server.app.service.settings import Settings
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.engine import Engine

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
CLIENT = REPOSITORY / "clients" / "js"
MODULES = REPOSITORY / "app" / "static" / "tutti"
COMMAND_TIMEOUT_S = 120
CHUNK_MS = 40
"""The recorder speaks 2.5 times as fast as people."""

pytestmark = [pytest.mark.node, pytest.mark.timeout(2 * COMMAND_TIMEOUT_S)]


def bundle(folder: Path, address: str, user: str = "react_native_screen.mjs") -> Path:
    """Build the screen and its user as an application would, with the client of this checkout."""
    fakes = HERE / "react_native_fakes.mjs"
    aliases = {
        **{"react": fakes, "react/jsx-runtime": fakes, "react-native": fakes, "react-native-live-audio-stream": fakes},
        **{"tutti-asr-client": MODULES / "core.js", "tutti-asr-client/react-native": MODULES / "react_native.js"},
    }
    screen = folder / "screen.mjs"
    command = [
        *(str(CLIENT / "node_modules" / ".bin" / "esbuild"), str(HERE / user)),
        *("--bundle", "--format=esm", "--platform=node", "--loader:.js=jsx", "--jsx=automatic"),
        *(f"--alias:{name}={path}" for name, path in sorted(aliases.items(), reverse=True)),
        f"--outfile={screen}",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=COMMAND_TIMEOUT_S)
    text = screen.read_text()
    assert '"https://captions.example.org"' in text
    screen.write_text(text.replace("https://captions.example.org", address))
    return screen


async def output_of(screen: Path, *arguments: str | Path) -> bytes:
    """What the user of the screen prints."""
    # Node.js before 22 has a WebSocket behind this option only.
    command = ("node", "--experimental-websocket", "--no-warnings", screen, *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    return output


async def test_the_screen_captions_speech_and_goes_on_after_the_background(tmp_path: Path) -> None:
    """A user starts with a double tap, leaves the application, comes back and stops: no word is lost."""
    require_node()
    audio = tmp_path / "audio.pcm"
    audio.write_bytes(read("hello").tobytes() + bytes(32_000))
    settings = small_settings(max_ahead_s=600.0, max_final_wait_s=1000.0)
    async with Engine.start(EngineConfig(model=SMALL_MODEL)) as engine:
        server = Server(build_app(settings, engine), settings)
        with bind(settings) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            screen = bundle(tmp_path, f"http://127.0.0.1:{listener.getsockname()[1]}")
            output = await output_of(screen, audio, str(CHUNK_MS))
            server.stop()
            await serving
    *statuses, lines = output.decode().splitlines()
    assert statuses[:5] == ["stopped", "connecting", "listening", "no connection: what you say is kept", "listening"]
    assert statuses[-1] == "stopped"
    assert words(" ".join(json.loads(lines))) == words(TEXTS["hello"])


@pytest.mark.parametrize("way", ["leave", "stop"])
async def test_who_goes_before_the_session_is_open_is_not_recorded(tmp_path: Path, way: str) -> None:
    """Nothing is left that could stop the microphone later."""
    require_node()
    audio = tmp_path / "audio.pcm"
    audio.write_bytes(bytes(32_000))
    async with running(Settings(port=0), FakeTranscriber()) as server:
        screen = bundle(tmp_path, f"http://{server.address}", "react_native_leaver.mjs")
        output = await output_of(screen, audio, str(CHUNK_MS), way)
    assert json.loads(output) == ["stopped", False]
