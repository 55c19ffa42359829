"""Transcribes recordings with faster-whisper, in an environment that has it.

python file_engine.py JSON

The argument is a JSON object of `Options`. The first line of the output names versions. Then each line of the input
names a recording, and a line of the output answers it. The program ends with its input.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
Recognise = Callable[[Samples, str | None], str]
"""Takes a recording and its language, or `None` to detect it. Returns the text."""

PACKAGES = ("faster-whisper", "ctranslate2")
"""The packages with the versions that are reported."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the program runs."""

    folder: str
    """The checkpoint, in the layout of CTranslate2."""
    threads: int
    is_multilingual: bool
    compute_type: str = "float32"
    beam_size: int = 5


def open_faster_whisper(options: Options) -> Recognise:
    """faster-whisper with all of its defaults but the size of its beam."""
    from faster_whisper import WhisperModel

    if options.is_multilingual:
        from checkpoint import make_multilingual

        make_multilingual(WhisperModel)
    model = WhisperModel(options.folder, device="cpu", compute_type=options.compute_type, cpu_threads=options.threads)

    def recognise(samples: Samples, language: str | None) -> str:
        found, _ = model.transcribe(samples, language=language, beam_size=options.beam_size)
        return "".join(segment.text for segment in found).strip()

    return recognise


def main() -> None:
    """Answer each line of the input."""
    options = Options(**json.loads(sys.argv[1]))
    # Standard output carries the answers alone: what libraries print goes to standard error.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        recognise = open_faster_whisper(options)
    except ModuleNotFoundError as error:
        sys.exit(
            f"{error.name} is not installed for {sys.executable}; the extra bench has it: pip install -e '.[bench]'"
        )
    print(json.dumps({"versions": {name: version(name) for name in PACKAGES}}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        samples = np.load(request["audio"]).astype(np.float32) / 32768
        print(json.dumps({"text": recognise(samples, request["language"])}), file=answers)


if __name__ == "__main__":
    main()
