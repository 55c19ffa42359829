"""Records what OpenAI's SDKs send, and what is answered: `python -m tests.compat.record_openai_rest`.

The speech is made up, and so is the engine that hears it (`tests/fakes.py`).
"""

import asyncio
import contextlib
import io
import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import av
import numpy as np
import openai
import uvicorn
from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.compat.http_exchange import GOLDEN, REQUEST_HEADERS, Request, replay, write
from tests.fakes import FakeTranscriber, LevelDetector, silence, speech
from tutti_server.app.media.decoder_workers import Decoders
from tutti_server.app.server.main import build_app
from tutti_server.app.service.settings import Settings
from tutti_server.app.session.core.options import SessionConfig

FOLDER = GOLDEN / "openai-rest"
JS = Path(__file__).parent / "js"
KEY = "sk-recorded"
TALK = np.concatenate((silence(0.2), speech([1, 2, 3]), silence(1.0), speech([4, 5]), silence(0.2)))
CALLS: dict[str, dict[str, Any]] = {
    "json": {"model": "gpt-4o-transcribe", "language": "en"},
    "verbose": {
        "model": "whisper-1",
        "response_format": "verbose_json",
        "timestamp_granularities": ["word", "segment"],
        "temperature": 0,
    },
    "srt": {"model": "whisper-1", "response_format": "srt"},
    "stream": {"model": "gpt-4o-mini-transcribe", "stream": True, "include": ["logprobs"]},
    "hints": {
        "model": "gpt-transcribe",
        "languages": ["en", "de"],
        "keywords": ["Kowalski", "New Orleans"],
        "chunking_strategy": {"type": "server_vad", "silence_duration_ms": 300, "threshold": 0.4},
    },
    "speakers": {"model": "gpt-4o-transcribe-diarize", "response_format": "diarized_json", "chunking_strategy": "auto"},
}


def flac(samples: np.ndarray) -> bytes:
    """Without the padding, which would be most of the file."""
    file = io.BytesIO()
    with av.open(file, "w", format="flac", options={"metadata_header_padding": "0"}) as output:
        stream = output.add_stream("flac", rate=16_000, layout="mono")
        frame = av.AudioFrame.from_ndarray((samples * 32768).astype("<i2")[None], "s16", "mono")
        frame.sample_rate = 16_000
        output.mux([*stream.encode(frame), *stream.encode(None)])
    return file.getvalue()


def service(decoders: Decoders) -> ASGIApp:
    """The service around an engine that understands the made-up speech."""
    config = SessionConfig(make_detector=LevelDetector)
    return build_app(Settings(api_keys=KEY), FakeTranscriber(), config, decoders=decoders)


class Recorder:
    """Keeps what it is sent, and answers nothing of use."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = HttpRequest(scope, receive)
        body = [piece async for piece in request.stream() if piece]
        headers = {name: request.headers[name] for name in REQUEST_HEADERS if name in request.headers}
        self.requests.append(Request(request.method, request.url.path, headers, body))
        await send({"type": "http.response.start", "status": 418, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


async def main() -> None:
    recorder = Recorder()
    server = uvicorn.Server(uvicorn.Config(recorder, http="h11", lifespan="off", log_level="warning"))
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve([listener]))
    base_url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "talk.flac"
        path.write_bytes(flac(TALK))
        async with openai.AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0) as client:
            for params in CALLS.values():
                with contextlib.suppress(openai.APIStatusError):
                    await client.audio.transcriptions.create(file=path, **params)
        calls = [{"path": str(path), "params": params} for params in CALLS.values()]
        arguments = json.dumps({"baseURL": base_url, "apiKey": KEY, "calls": calls})
        await asyncio.to_thread(subprocess.run, ["node", "transcribe.mjs", arguments], cwd=JS, check=True)
    server.should_exit = True
    await serving
    npm = json.loads((JS / "package.json").read_text())["dependencies"]["openai"]
    clients = {"python": f"openai {openai.__version__} (PyPI)", "js": f"openai {npm} (npm)"}
    names = [(language, name) for language in clients for name in CALLS]
    FOLDER.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(Decoders()) as decoders:
        for (language, name), request in zip(names, recorder.requests, strict=True):
            # What the one in JavaScript sends is answered like what the one in Python sends.
            answer = await replay(service(decoders), request) if language == "python" else None
            write(FOLDER / f"{language}-{name}.json", clients[language], request, answer)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
