"""whisper_streaming on the CPU: `python whisper_streaming_server.py SOURCE ARGUMENTS`, in its environment.

What follows the folder of its source goes to its own `whisper_online_server.py`.
"""

import runpy
import socket
import sys
from pathlib import Path
from typing import Any

from checkpoint import make_multilingual, pad_windows_with_silence

PACKET_BYTES = 5 * 60 * 32_000
"""What its later versions read at once. Two seconds, as in this one, would leave it behind for good once it is late."""


def main() -> None:
    program = Path(sys.argv.pop(1)) / "whisper_online_server.py"
    pad_windows_with_silence()
    from faster_whisper import WhisperModel

    make_multilingual(WhisperModel)
    run_on_cpu(WhisperModel)
    socket.socket = LargeReads
    sys.path.insert(0, str(program.parent))
    runpy.run_path(str(program), run_name="__main__")


class LargeReads(socket.socket):
    def recv(self, size: int, *flags: int) -> bytes:
        return super().recv(PACKET_BYTES, *flags)


def run_on_cpu(model_class: Any) -> None:
    """Its loader asks for CUDA in float16, whatever the machine; int8 is what it names for CPUs."""
    build = model_class.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        build(self, *arguments, **{**options, "device": "cpu", "compute_type": "int8"})

    model_class.__init__ = init


if __name__ == "__main__":
    main()
