"""Cuts training clips from recordings and changes them. Every batch is a function of the seed and its number."""

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from tutti_server.engine.api import SAMPLE_RATE, WINDOW_SAMPLES
from tutti_server.engine.model.audio_context import STATES_STEP
from tutti_server.engine.model.log_mel import STATE_SAMPLES

Samples = NDArray[np.float32]

FULL_SHARE = 0.2
"""The share of batches with full windows, so that these stay as they were."""
MARGIN_S = (0.35, 0.9)
"""The quiet between the end of a clip and the end of its window. The engine leaves 0.5 to 0.7 s."""
LENGTHS_S = ((1.0, 6.0), (1.0, 15.0), (6.0, 29.0))
"""Clips are as long as a window whose length is drawn from one of these ranges: short ones are the hardest."""
WHOLE_SHARE = 0.6
"""The share of pieces that begin where their recording begins. The others begin anywhere."""
SINGLE_SHARE = 0.35
"""The share of pieces after which a clip ends, although there is room for another one."""
PAUSES_S = (0.05, 0.2, 0.5, 1.5)
"""The longest pauses between joined pieces."""
SPEECHLESS_SHARE = 0.02
"""The share of clips that are quiet or noise, so that the no-speech probability stays as it was."""
SPEEDS = (0.9, 1.12)
SNR_DB = (5.0, 45.0)
LEVELS_DB = (-18.0, 6.0)
NOISY_SHARE, DULL_NOISE_SHARE, TELEPHONE_SHARE = 0.6, 0.6, 0.2
LEVEL_BELOW_HZ = 40
"""Below this frequency dull noise is as strong as at it."""
N_THREADS = 4
"""Threads that make batches ahead."""
_LEAST_RMS = 1e-4


@dataclass(frozen=True, slots=True)
class ClipBatch:
    """Clips of one length of window."""

    samples: Tensor
    """`(clips, WINDOW_SAMPLES)` float32 on the device, with zeros after each clip."""
    n_states: int
    """Encoder states of the cut window, as the engine cuts windows."""


class Clips:
    """Makes batches of clips."""

    def __init__(self, recordings: Sequence[Samples], device: torch.device, seed: int, n_full_states: int) -> None:
        """Draw from these recordings, the longer ones more often.

        Args:
            recordings: mono audio at 16 kHz.
            device: where clips are changed, and returned.
            seed: equal seeds give equal batches on equal devices.
        """
        self._recordings = recordings
        roots = np.sqrt([len(each) for each in recordings])
        self._weights = roots / roots.sum()
        self._device = device
        self._seed = seed
        self._n_full_states = n_full_states
        self._threads = ThreadPoolExecutor(N_THREADS)
        self._later: dict[tuple[int, int], Future[ClipBatch]] = {}

    def n_states(self, group: int) -> int:
        """Encoder states of the windows of a group of batches."""
        rng = np.random.default_rng((self._seed, group))
        if rng.random() < FULL_SHARE:
            return self._n_full_states
        window_s = rng.uniform(*LENGTHS_S[rng.integers(len(LENGTHS_S))]) + MARGIN_S[1]
        n_states = math.ceil(window_s * SAMPLE_RATE / STATE_SAMPLES / STATES_STEP) * STATES_STEP
        return min(self._n_full_states, n_states)

    def batch(self, group: int, part: int, n_clips: int) -> ClipBatch:
        """Return one of the batches of a group: the same clips each time that it is asked for."""
        rng = np.random.default_rng((self._seed, group, part))
        n_states = self.n_states(group)
        n_window = n_states * STATE_SAMPLES
        lengths = n_window - (rng.uniform(*MARGIN_S, n_clips) * SAMPLE_RATE).astype(int)
        if n_states == self._n_full_states:
            lengths = rng.integers(SAMPLE_RATE, n_window + 1, n_clips)
        clips = np.stack([np.pad(each := self._clip(rng, n), (0, n_window - len(each))) for n in lengths])
        generator = torch.Generator(self._device).manual_seed(int(rng.integers(2**62)))
        samples = _changed(torch.from_numpy(clips).to(self._device), rng, generator)
        ends = torch.from_numpy(lengths).to(self._device)
        # The quiet of the margin is digital silence in the engine, too.
        samples = samples * (torch.arange(n_window, device=self._device) < ends[:, None])
        return ClipBatch(F.pad(samples, (0, WINDOW_SAMPLES - n_window)), n_states)

    def batch_and_later(self, place: tuple[int, int], later: Sequence[tuple[int, int]], n_clips: int) -> ClipBatch:
        """A batch, while threads make those of which the next calls will ask: groups and parts, as in `batch`."""
        batch = self._later.pop(place, None)
        for each in later:
            if each not in self._later:
                self._later[each] = self._threads.submit(self.batch, *each, n_clips)
        return batch.result() if batch else self.batch(*place, n_clips)

    def _clip(self, rng: np.random.Generator, n_samples: int) -> Samples:
        """Pieces of recordings with pauses between them, broken off at the length."""
        clip = np.zeros(n_samples, np.float32)
        if rng.random() < SPEECHLESS_SHARE:
            return clip
        begin = int(rng.random() ** 3 * SAMPLE_RATE)
        while begin < n_samples:
            recording = self._recordings[rng.choice(len(self._recordings), p=self._weights)]
            first = 0 if rng.random() < WHOLE_SHARE else int(rng.integers(max(1, len(recording) - SAMPLE_RATE)))
            piece = recording[first : first + n_samples - begin]
            clip[begin : begin + len(piece)] = piece
            begin += len(piece) + int(rng.choice(PAUSES_S) * SAMPLE_RATE * rng.random())
            if rng.random() < SINGLE_SHARE:
                break
        return clip


def _changed(samples: Tensor, rng: np.random.Generator, generator: torch.Generator) -> Tensor:
    """Other speeds, a telephone's band, noise and levels: `(clips, n_samples)` to the same."""
    n_samples, shape = samples.shape[1], (len(samples), 1)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(shape, device=samples.device, generator=generator)

    samples = _resampled(samples, round(n_samples * rng.uniform(*SPEEDS)))
    samples = F.pad(samples, (0, max(0, n_samples - samples.shape[1])))[:, :n_samples]
    if rng.random() < TELEPHONE_SHARE:
        samples = _resampled(_resampled(samples, n_samples // 2), n_samples)
    noise = torch.randn(samples.shape, device=samples.device, generator=generator)
    if rng.random() < DULL_NOISE_SHARE:
        # Noise whose power falls with the frequency, as that of rooms and streets does.
        spectrum = torch.fft.rfft(noise)
        bins = torch.arange(spectrum.shape[1], device=samples.device)
        noise = torch.fft.irfft(spectrum / bins.clamp_min(LEVEL_BELOW_HZ * n_samples // SAMPLE_RATE), n=n_samples)
    is_noisy = uniform(0, 1) < NOISY_SHARE
    level = samples.square().mean(1, keepdim=True).sqrt().clamp_min(_LEAST_RMS)
    noise = noise / noise.square().mean(1, keepdim=True).sqrt()
    samples = samples + noise * level * 10 ** (-uniform(*SNR_DB) / 20) * is_noisy
    return (samples * 10 ** (uniform(*LEVELS_DB) / 20)).clamp(-1, 1)


def _resampled(samples: Tensor, n_samples: int) -> Tensor:
    return F.interpolate(samples[:, None], size=n_samples, mode="linear", align_corners=False)[:, 0]
