"""Transcribes recordings with faster-whisper or transformers, in an environment that has them.

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
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000
Samples = NDArray[np.float32]
Recognise = Callable[[Samples, str | None], dict[str, Any]]
"""Takes a recording and its language, or `None` to detect it. Returns the fields of an answer."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the program runs."""

    engine: str
    """The name of an entry of `ENGINES`."""
    folder: str
    """The checkpoint: for faster-whisper in the layout of CTranslate2, for transformers in its own."""
    threads: int
    is_multilingual: bool
    compute_type: str = "float32"
    beam_size: int = 5
    has_words: bool = False
    """Whether words have times. Only faster-whisper can do that here."""


def open_faster_whisper(options: Options) -> Recognise:
    """faster-whisper with all of its defaults but the size of its beam."""
    from faster_whisper import WhisperModel

    if options.is_multilingual:
        from checkpoint import make_multilingual

        make_multilingual(WhisperModel)
    model = WhisperModel(options.folder, device="cpu", compute_type=options.compute_type, cpu_threads=options.threads)

    def recognise(samples: Samples, language: str | None) -> dict[str, Any]:
        found, info = model.transcribe(
            samples, language=language, beam_size=options.beam_size, word_timestamps=options.has_words
        )
        segments = list(found)
        words = [[word.word, word.start, word.end] for segment in segments for word in segment.words or ()]
        return {
            "text": "".join(segment.text for segment in segments).strip(),
            "words": words,
            "language": info.language,
        }

    return recognise


def open_transformers(options: Options) -> Recognise:
    """The speech recognition pipeline of transformers: greedy, and long recordings with `generate`'s own windows."""
    import torch
    from transformers import pipeline
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    torch.set_num_threads(options.threads)
    pipe: Any = pipeline("automatic-speech-recognition", model=options.folder, device="cpu", dtype=torch.float32)

    codes = {
        token: name.strip("<|>") for name, token in getattr(pipe.model.generation_config, "lang_to_id", {}).items()
    }

    def detect(samples: Samples) -> str:
        features = pipe.feature_extractor(samples, sampling_rate=SAMPLE_RATE, return_tensors="pt").input_features
        (token,) = pipe.model.detect_language(features)
        return str(codes[int(token)])

    def recognise(samples: Samples, language: str | None) -> dict[str, Any]:
        generate: dict[str, Any] = {"num_beams": 1, "do_sample": False}
        if options.is_multilingual:
            language = language or detect(samples)
            generate |= {"language": language, "task": "transcribe"}
        # A new dict for each call: the pipeline removes entries from it.
        audio = {"raw": samples, "sampling_rate": SAMPLE_RATE}
        result = pipe(audio, generate_kwargs=generate, return_timestamps=True)
        return {"text": result["text"].strip(), "words": [], "language": language}

    return recognise


ENGINES: dict[str, tuple[Callable[[Options], Recognise], tuple[str, ...]]] = {
    "faster-whisper": (open_faster_whisper, ("faster-whisper", "ctranslate2")),
    "transformers": (open_transformers, ("transformers", "torch")),
}
"""How each engine is opened, and the packages with the versions that are reported."""


def main() -> None:
    """Answer each line of the input."""
    options = Options(**json.loads(sys.argv[1]))
    # Standard output carries the answers alone: what libraries print goes to standard error.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    open_engine, packages = ENGINES[options.engine]
    try:
        recognise = open_engine(options)
    except ModuleNotFoundError as error:
        sys.exit(
            f"{error.name} is not installed for {sys.executable}; the extra bench has it: pip install -e '.[bench]'"
        )
    print(json.dumps({"versions": {name: version(name) for name in packages}}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        samples = np.load(request["audio"]).astype(np.float32) / 32768
        print(json.dumps(recognise(samples, request["language"])), file=answers)


if __name__ == "__main__":
    main()
