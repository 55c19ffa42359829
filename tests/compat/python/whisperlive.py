"""Streams int16 samples with whisper-live's own client, in a process of its own.

It is given one JSON object as its argument and writes another one. Of what the package's client imports, PyAudio needs
a C library that is not everywhere, and neither it nor scipy is used here: both are empty.
"""

import json
import sys
import types
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

for unused in ("pyaudio", "scipy"):
    sys.modules[unused] = types.ModuleType(unused)

from whisper_live.client import StreamingTranscriptionClient  # noqa: E402  # the empty modules come first


def stream(host: str, port: str, pcm: str, options: dict[str, Any]) -> dict[str, Any]:
    """Sends a file of samples as fast as they are taken."""
    committed = []
    client = StreamingTranscriptionClient(
        host,
        port,
        on_committed_transcript=lambda text, segments: committed.append(text),
        **options,
    )
    client.connect()
    with Path(pcm).open("rb") as file:
        while chunk := file.read(8192):
            client.send(chunk)
    client.close()
    return {"committed": committed, "segments": client.transcript}


with redirect_stdout(sys.stderr):
    result = stream(**json.loads(sys.argv[1]))
sys.stdout.write(json.dumps(result))
