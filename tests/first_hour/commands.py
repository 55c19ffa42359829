"""The commands of the documentation, and what they do."""

from typing import NamedTuple

from tests.recordings import SENTENCES, TEXTS
from tutti_server.engine.checkpoint.catalog import EMBEDDED_MODEL

HELLO, TRAIN = TEXTS["hello"], TEXTS["train"]
SAMPLE = (SENTENCES[2], SENTENCES[-1])
"""Parts of the text of the recording that takes the place of app/assets/sample.flac in these tests."""


class Expected(NamedTuple):
    """What a command of the documentation does."""

    output: tuple[str, ...] = ()
    """Parts of its output."""
    files: tuple[str, ...] = ()
    """Files that it writes."""


PAGES = ("README.md", "docs/quickstart.md")
COMMANDS = {
    ".venv/bin/tutti transcribe app/assets/sample.flac": Expected(SAMPLE),
    ".venv/bin/tutti transcribe app/assets/sample.flac --format srt": Expected((" --> ", *SAMPLE)),
    ".venv/bin/tutti transcribe talks/ --format srt --beside": Expected(
        files=("talks/train.srt", "talks/monday/hello.srt")
    ),
    ".venv/bin/tutti transcribe talks/ -o texts/": Expected(files=("texts/train.txt", "texts/monday/hello.txt")),
    ".venv/bin/tutti transcribe call.wav --channels": Expected((f"channel 0: {HELLO}", f"channel 1: {TRAIN}")),
    ".venv/bin/tutti models": Expected((EMBEDDED_MODEL, "openai/whisper-small")),
    ".venv/bin/tutti serve --help": Expected(("--max-sessions", "TUTTI_MAX_SESSIONS")),
    ".venv/bin/python -m tutti speech.wav --realtime": Expected((HELLO,)),
    "curl -F file=@app/assets/sample.flac -F response_format=srt "
    "http://127.0.0.1:8000/v1/audio/transcriptions": Expected((" --> ", *SAMPLE)),
    ".venv/bin/python -m tutti app/assets/sample.flac": Expected(SAMPLE),
}
"""The commands of the documentation that end by themselves."""
SIMILAR = (
    ".venv/bin/tutti transcribe app/assets/sample.flac --format srt",
    ".venv/bin/tutti transcribe talks/ -o texts/",
    ".venv/bin/tutti transcribe talks/ --format srt --beside",
    ".venv/bin/tutti transcribe call.wav --channels",
    ".venv/bin/tutti models",
    ".venv/bin/tutti serve --help",
    ".venv/bin/python -m tutti speech.wav --realtime",
)
"""Those that wait for the night. Tests of the command line have them, and their options, by day."""
SERVERS = (".venv/bin/tutti serve --model openai/whisper-small",)
"""Those that run until Ctrl-C."""
LEFT_OUT = (".venv/bin/python -m tutti mic --language en", ".venv/bin/tutti serve --engines auto --gateways 8")
"""Those that need a microphone, or several GPUs."""
