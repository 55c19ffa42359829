"""Holds all speech made so far as one int16 tensor on the device, and reports the sentences in it."""

import logging
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.speech.bank_index import SAMPLE_RATE, Chunk
from training.speech.production import FULL, KINDS

logger = logging.getLogger(__name__)


def resample(audio: Tensor, sample_rate: int) -> Tensor:
    """Resample to 16 kHz in the frequency domain, padded to one of few lengths, as each length keeps a workspace."""
    divisor = math.gcd(sample_rate, SAMPLE_RATE)
    up, down = SAMPLE_RATE // divisor, sample_rate // divisor
    blocks = 1024 << (-(-len(audio) // (down * 1024)) - 1).bit_length()
    spectrum = torch.fft.rfft(audio, blocks * down)
    n_bins = blocks * up // 2 + 1
    if len(spectrum) < n_bins:
        spectrum = torch.nn.functional.pad(spectrum, (0, n_bins - len(spectrum)))
    resampled: Tensor = torch.fft.irfft(spectrum[:n_bins], blocks * up)
    return resampled[: len(audio) * SAMPLE_RATE // sample_rate] * (up / down)


class Bank:
    """Loads chunk files in a thread of its own as they appear."""

    def __init__(
        self,
        folder: Path,
        hours: float,
        device: torch.device,
        keep_hours: float = 0.0,
        on_chunk: Callable[[Chunk], None] = lambda chunk: None,
    ) -> None:
        """`on_chunk` receives the sentences of each chunk, in the thread that loads it."""
        self.on_chunk = on_chunk
        self.folder, self.device, self.keep_hours = folder, device, keep_hours
        self.audio = torch.empty(int(hours * 3600 * SAMPLE_RATE), dtype=torch.int16, device=device)
        self.position = 0
        self.n_sentences = 0
        self.hours_by_kind = np.zeros(len(KINDS))
        self.stopping = False
        self.is_full = False
        self._loaded: set[Path] = set()
        # The class is untyped in PyTorch.
        self._stream = torch.cuda.Stream() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    @property
    def hours(self) -> float:
        """Hours of speech loaded so far."""
        return float(self.hours_by_kind.sum())

    def load(self, file: Path) -> None:
        """Load a chunk file, or mark the bank as full."""
        arrays = np.load(file)
        rate, rows = int(arrays["sample_rate"]), arrays["rows"]
        audio = torch.from_numpy(arrays["audio"]).to(self.device)
        starts, lengths, word_starts = rows[:, 0], rows[:, 1], arrays["words"][:, 2]
        if rate != SAMPLE_RATE:
            audio = resample(audio.float(), rate).round_().clamp_(-32767, 32767).to(torch.int16)
            starts, lengths = starts * SAMPLE_RATE // rate, lengths * SAMPLE_RATE // rate
            word_starts = np.where(word_starts >= 0, word_starts.astype(np.int64) * SAMPLE_RATE // rate, -1)
        if self.position + len(audio) + 64 > len(self.audio):
            self.is_full = True
            (self.folder / FULL).touch()
            return
        self.audio[self.position : self.position + len(audio)] = audio
        if self._stream is not None:
            self._stream.synchronize()
        words = arrays["words"].copy()
        words[:, 2] = word_starts
        chunk = Chunk(starts + self.position, lengths, rows[:, 2], arrays["tokens"], arrays["classes"], words)
        self.position += len(audio)
        self.hours_by_kind[int(arrays["kind"])] += lengths.sum() / SAMPLE_RATE / 3600
        self.n_sentences += len(rows)
        self.on_chunk(chunk)

    def poll(self) -> None:
        """Load the chunk files that have appeared since the last call, and delete those not kept for a restart."""
        for file in sorted(self.folder.glob("*.npz"), key=lambda file: file.stat().st_mtime):
            if self.stopping or self.is_full:
                return
            if file in self._loaded:
                continue
            if self._stream is not None:
                with torch.cuda.stream(self._stream):
                    self.load(file)
            else:
                self.load(file)
            self._loaded.add(file)
            if self.hours > self.keep_hours:
                file.unlink()

    def start(self) -> None:
        """Start the thread that loads."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        try:
            while not self.stopping and not self.is_full:
                self.poll()
                time.sleep(0.5)
        except Exception:
            logger.exception("the bank stopped loading speech")
