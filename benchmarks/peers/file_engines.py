"""The engines that `benchmarks.accuracy` compares tutti with, each as it is commonly used on files.

Run as a program, it is one engine in its own process: it reads its task from a file and writes one line for each clip.
"""

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from app.media.pcm import Samples
from benchmarks.files.engines import BATCH, OFFLINE_ENGINES, Job, Transcribe
from engine.api import SAMPLE_RATE

CHUNK_S = 30
"""Length of the chunks of the transformers pipeline, in seconds: the length of a Whisper window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The clips that one process transcribes."""

    peer: str
    n_threads: int
    folder: str
    """The checkpoint folder in the layout of transformers."""
    ct2_folder: str
    """The same checkpoint, converted for CTranslate2. Empty if faster-whisper does not run."""
    audio: str
    """An `.npz` file of 16-bit recordings."""
    clips: Sequence[tuple[str, str]]
    """Names in `audio`, each with its language.

    Clips of one language are adjacent, as the engine is opened for each language.
    """


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine in the comparison."""

    open: Callable[[Job], AbstractContextManager[Transcribe]]
    needs: str
    """The Python module without which the engine is left out."""


@contextmanager
def transformers_pipeline(job: Job, **options: Any) -> Iterator[Transcribe]:
    """The speech recognition pipeline of transformers: greedy, and otherwise with its defaults."""
    import torch
    from transformers import pipeline
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    torch.set_num_threads(job.n_threads)
    recognise: Any = pipeline("automatic-speech-recognition", model=job.folder, device="cpu", dtype=torch.float32)
    # A tokenizer without a padding token cannot make batches. The padding itself is masked.
    recognise.tokenizer.pad_token_id = recognise.model.generation_config.eos_token_id
    generate_options: dict[str, Any] = {"num_beams": 1, "do_sample": False}
    if recognise.model.generation_config.is_multilingual:
        generate_options |= {"language": job.language, "task": "transcribe"}

    def one(clip: Samples) -> str:
        # A new dict for each call: the pipeline removes entries from the dicts that it receives.
        result = recognise(
            {"raw": clip, "sampling_rate": SAMPLE_RATE}, generate_kwargs=dict(generate_options), **options
        )
        return str(result["text"]).strip()

    yield lambda clips: [one(clip) for clip in clips]


PEERS = {
    "transformers-chunked": Peer(
        partial(transformers_pipeline, chunk_length_s=CHUNK_S, batch_size=BATCH, ignore_warning=True), "transformers"
    ),
    "transformers-long": Peer(partial(transformers_pipeline, return_timestamps=True), "transformers"),
    "fw": Peer(OFFLINE_ENGINES["fw-float32"].open, "faster_whisper"),
    "fw-batched": Peer(OFFLINE_ENGINES["fw-batched-float32"].open, "faster_whisper"),
}


def main() -> None:
    """Transcribe the clips of the task file named on the command line."""
    task = Task(**json.loads(Path(sys.argv[1]).read_text()))
    # Standard output carries the answers alone: what libraries print goes to standard error.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with np.load(task.audio) as archive:
        for language, clips in itertools.groupby(task.clips, key=lambda clip: clip[1]):
            job = Job(
                engine=task.peer,
                n_threads=task.n_threads,
                folder=task.folder,
                ct2_folder=task.ct2_folder,
                audio=task.audio,
                language=language,
            )
            with PEERS[task.peer].open(job) as transcribe:
                for name, _ in clips:
                    (text,) = transcribe([archive[name].astype(np.float32) / 32768])
                    print(json.dumps({"clip": name, "text": text}), file=answers)


if __name__ == "__main__":
    main()
