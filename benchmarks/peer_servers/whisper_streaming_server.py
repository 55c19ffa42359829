"""Starts whisper_streaming on the CPU: `python whisper_streaming_server.py SOURCE ARGUMENTS`, in its environment.

SOURCE is the folder of its source. ARGUMENTS go to its own `whisper_online_server.py`.
"""

import runpy
import socket
import sys
from pathlib import Path
from typing import Any

from checkpoint import make_multilingual, pad_windows_with_silence

PACKET_BYTES = 5 * 60 * 32_000
"""Bytes received at once: 5 minutes, as in later versions.

With the 2 s of this version it never catches up once late.
"""


def main() -> None:
    """Adapt its libraries and run its server."""
    program = Path(sys.argv.pop(1)) / "whisper_online_server.py"
    pad_windows_with_silence()
    from faster_whisper import WhisperModel

    make_multilingual(WhisperModel)
    run_on_cpu(WhisperModel)
    socket.socket = LargeReads  # type: ignore[misc]  # the server creates its sockets by this name
    sys.path.insert(0, str(program.parent))
    runpy.run_path(str(program), run_name="__main__")


class LargeReads(socket.socket):
    """A socket whose reads return up to `PACKET_BYTES`, whatever size is asked for."""

    def recv(self, size: int, *flags: int) -> bytes:
        """Receive up to `PACKET_BYTES` bytes."""
        return super().recv(PACKET_BYTES, *flags)


def run_on_cpu(model_class: Any) -> None:
    """Make models load on the CPU in int8, the type that the project names for CPUs. Its loader always uses CUDA."""
    build = model_class.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        build(self, *arguments, **{**options, "device": "cpu", "compute_type": "int8"})

    model_class.__init__ = init


if __name__ == "__main__":
    main()
