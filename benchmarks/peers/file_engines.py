"""The engines that `benchmarks.accuracy` compares tutti with, each as it is commonly used on files.

Run as a program, it is one of them in a process of its own: it reads its task from a file and writes a line a clip.
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
from benchmarks.files.engines import BATCH, CONTENDERS, Job, Transcribe
from engine.api import SAMPLE_RATE

CHUNK_S = 30


@dataclass(frozen=True, slots=True)
class Task:
    """What one process is to transcribe."""

    peer: str
    n_threads: int
    folder: str
    """The checkpoint as transformers has it."""
    ct2_folder: str
    """The same checkpoint, converted for CTranslate2; empty where faster-whisper is not asked."""
    audio: str
    """An `.npz` of 16-bit recordings."""
    clips: Sequence[tuple[str, str]]
    """Names in it, each with its language. Those of a language stand together: an engine is opened for each."""


@dataclass(frozen=True, slots=True)
class Peer:
    open: Callable[[Job], AbstractContextManager[Transcribe]]
    needs: str
    """The module without which it is left out."""


@contextmanager
def transformers_pipeline(job: Job, **options: Any) -> Iterator[Transcribe]:
    """The pipeline for speech recognition, greedy and otherwise with its defaults."""
    import torch
    from transformers import pipeline
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(job.n_threads)
    recognise: Any = pipeline("automatic-speech-recognition", model=job.folder, device="cpu", dtype=torch.float32)
    # Tokenizers without one cannot make batches; what stands in the padding is never looked at.
    recognise.tokenizer.pad_token_id = recognise.model.generation_config.eos_token_id
    told: dict[str, Any] = {"num_beams": 1, "do_sample": False}
    if recognise.model.generation_config.is_multilingual:
        told |= {"language": job.language, "task": "transcribe"}

    def one(clip: Samples) -> str:
        # The pipeline takes the array out of what it is given.
        heard = recognise({"raw": clip, "sampling_rate": SAMPLE_RATE}, generate_kwargs=dict(told), **options)
        return str(heard["text"]).strip()

    yield lambda clips: [one(clip) for clip in clips]


PEERS = {
    "transformers-chunked": Peer(
        partial(transformers_pipeline, chunk_length_s=CHUNK_S, batch_size=BATCH, ignore_warning=True), "transformers"
    ),
    "transformers-long": Peer(partial(transformers_pipeline, return_timestamps=True), "transformers"),
    "fw": Peer(CONTENDERS["fw-float32"].open, "faster_whisper"),
    "fw-batched": Peer(CONTENDERS["fw-batched-float32"].open, "faster_whisper"),
}


def main() -> None:
    task = Task(**json.loads(Path(sys.argv[1]).read_text()))
    # Whatever libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with np.load(task.audio) as archive:
        for language, clips in itertools.groupby(task.clips, key=lambda clip: clip[1]):
            job = Job(task.peer, task.n_threads, task.folder, task.ct2_folder, task.audio, language)
            with PEERS[task.peer].open(job) as transcribe:
                for name, _ in clips:
                    (text,) = transcribe([archive[name].astype(np.float32) / 32768])
                    print(json.dumps({"clip": name, "text": text}), file=answers)


if __name__ == "__main__":
    main()
