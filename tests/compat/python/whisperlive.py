"""Runs whisper-live's own client in a process of its own, as its waiting for the end keeps a core busy.

It is given one JSON object as its argument and writes another one. Of what the package's client imports, PyAudio needs
a C library that is not everywhere, and scipy is never used; both are empty here.
"""

import json
import sys
import types
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

pyaudio = types.ModuleType("pyaudio")


class PyAudio:
    def open(self, **options: object) -> None:
        raise OSError("there is no microphone here")

    def terminate(self) -> None:
        pass


vars(pyaudio).update(paInt16=8, PyAudio=PyAudio)
sys.modules["pyaudio"] = pyaudio
sys.modules["scipy"] = types.ModuleType("scipy")

from whisper_live.client import StreamingTranscriptionClient, TranscriptionClient  # noqa: E402  # stubs come first


def transcribe_file(
    host: str, port: str, path: str, srt: str, wait_s: float, options: dict[str, Any]
) -> dict[str, Any]:
    """Plays a file at the pace of speech, and waits for `wait_s` without new text."""
    client = TranscriptionClient(
        host, port, mute_audio_playback=True, output_transcription_path=srt, log_transcription=False, **options
    )
    client.client.disconnect_if_no_response_for = wait_s
    text = client(path)
    inner = client.client
    error = str(getattr(inner, "error_message", ""))
    return {"text": text, "segments": inner.transcript, "failed": inner.server_error, "error": error}


def stream(host: str, port: str, pcm: str, options: dict[str, Any]) -> dict[str, Any]:
    """Sends int16 samples as fast as they are taken."""
    committed = []
    client = StreamingTranscriptionClient(
        host,
        port,
        on_committed_transcript=lambda text, segments: committed.append(text),
        **options,
    )
    try:
        client.connect()
    except RuntimeError as error:
        return {"refused": str(error)}
    with Path(pcm).open("rb") as file:
        while chunk := file.read(8192):
            client.send(chunk)
    client.close()
    return {"committed": committed, "segments": client.transcript}


arguments = json.loads(sys.argv[1])
programs: dict[str, Callable[..., Any]] = {"transcribe_file": transcribe_file, "stream": stream}
run = programs[arguments.pop("run")]
with redirect_stdout(sys.stderr):
    result = run(**arguments)
sys.stdout.write(json.dumps(result))
