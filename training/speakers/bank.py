"""All speech of the virtual speakers made so far, in the training device's memory."""

import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.speakers.production import HELD_OUT


class SpeakerBank:
    """Stretches of speech by virtual speaker. A thread loads chunk files while the training runs."""

    def __init__(self, folder: Path, device: torch.device, hours: float, watches: bool = True) -> None:
        """Make an empty bank for at most `hours` of speech. If it `watches`, a thread loads new chunk files."""
        self.device = device
        self.audio = torch.zeros(int(hours * 3600 * 16_000), dtype=torch.int16, device=device)
        self.held_out: dict[int, np.ndarray[tuple[int], np.dtype[np.int16]]] = {}
        """The speech of each held-out voice, which is never trained on."""
        self._folder = folder
        self._n_used = 0
        self._rows: list[tuple[int, int, int]] = []
        """Speaker, first sample and number of samples of each stretch."""
        self._loaded: set[str] = set()
        self._index: tuple[Tensor, int] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if watches:
            self._thread.start()

    @property
    def hours(self) -> float:
        """Hours of speech loaded."""
        return self._n_used / 16_000 / 3600

    @property
    def n_speakers(self) -> int:
        """Virtual speakers with speech."""
        return len({row[0] for row in list(self._rows)})

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            self.load_new()
            time.sleep(0.2)

    def load_new(self) -> None:
        """Load the chunk files that are new in the folder."""
        files = [each for each in self._folder.glob("*.npz") if each.name not in self._loaded]
        for file in sorted(files):
            self._load(file)
            self._loaded.add(file.name)

    def _load(self, file: Path) -> None:
        try:
            arrays = np.load(file)
            audio, lengths, ids = arrays["audio"], arrays["lengths"].tolist(), arrays["speakers"].tolist()
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise RuntimeError(f"{file}: expected a chunk file, got {error}") from error
        starts = np.cumsum([0, *lengths]).tolist()
        if file.name.startswith(HELD_OUT):
            for speaker, start, n in zip(ids, starts, lengths, strict=False):
                self.held_out[speaker] = audio[start : start + n]
        elif self._n_used + len(audio) <= len(self.audio):
            self.audio[self._n_used : self._n_used + len(audio)] = torch.from_numpy(audio).to(self.device)
            base = self._n_used
            self._n_used += len(audio)
            self._rows += [(s, base + start, n) for s, start, n in zip(ids, starts, lengths, strict=False)]

    def batch(self, n_speakers: int, n_each: int, n_samples: int) -> tuple[Tensor, Tensor]:
        """Clips of different speakers, `(n_speakers * n_each, n_samples)` float32, and the speakers' numbers.

        A clip that is longer than its stretch goes on with its beginning.
        """
        rows = list(self._rows)
        if self._index is None or self._index[1] != len(rows):
            self._index = (torch.tensor(sorted(rows), device=self.device), len(rows))
        table = self._index[0]
        present, counts = torch.unique_consecutive(table[:, 0], return_counts=True)
        first = torch.cumsum(counts, 0) - counts
        chosen = torch.randperm(len(present), device=self.device)[:n_speakers].repeat_interleave(n_each)
        which = first[chosen] + (torch.rand(len(chosen), device=self.device) * counts[chosen]).long()
        speaker, start, n = table[which].unbind(1)
        offset = (torch.rand(len(which), device=self.device) * n).long()
        at = start[:, None] + (offset[:, None] + torch.arange(n_samples, device=self.device)) % n[:, None]
        return self.audio[at].float() / 32768, speaker
