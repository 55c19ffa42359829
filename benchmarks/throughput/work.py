"""What the requests of a benchmark ask of the engine: windows of noise, and how many tokens each is decoded to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tutti_server.engine.api import SAMPLE_RATE, WINDOW_SAMPLES, DecodeOptions, Priority, Sampling, Window

N_NOISES = 64
"""Number of different recordings of noise that requests of different lengths share."""


@dataclass(frozen=True, slots=True)
class Work:
    audio_s: float
    n_tokens: int
    n_beams: int = field(default=1, kw_only=True)

    def window(self, index: int) -> Window:
        """Noise as loud as speech, different for each index. Its text is requested at the end, as the service does."""
        samples = np.random.default_rng(index).normal(0, 0.1, round(self.audio_s * SAMPLE_RATE)).astype(np.float32)
        return Window(
            samples=samples, session="", options=decode_options(self.n_tokens, self.n_beams), priority=Priority.FILE
        )

    def n_windows(self, concurrency: int, n_requests: int) -> int:
        """The number of different windows; requests take them in turn."""
        return min(n_requests, 4 * concurrency)

    def n_requests(self, least: int) -> int:
        """The number of requests of a run that needs at least this many."""
        return least

    def n_tokens_of(self, index: int) -> int:
        return self.n_tokens

    @property
    def mean_tokens(self) -> float:
        return self.n_tokens

    def lengths(self, n_requests: int) -> list[int]:
        return [self.n_tokens_of(index) for index in range(n_requests)]


@dataclass(frozen=True, slots=True)
class MixedWork(Work):
    """Requests of different lengths. `n_tokens` is the largest."""

    clips: Sequence[tuple[float, int]] = ()
    """The seconds of audio and the tokens of each request, in the order in which they are sent."""

    def window(self, index: int) -> Window:
        audio_s, n_tokens = self.clips[index % len(self.clips)]
        samples = _noise(index % N_NOISES)[: round(audio_s * SAMPLE_RATE)]
        return Window(samples=samples, session="", options=decode_options(n_tokens), priority=Priority.FILE)

    def n_windows(self, concurrency: int, n_requests: int) -> int:
        """Each request has its own window."""
        return n_requests

    def n_requests(self, least: int) -> int:
        """Every request is sent once, however many a run needs: some alone would have other lengths."""
        return len(self.clips)

    def n_tokens_of(self, index: int) -> int:
        return self.clips[index % len(self.clips)][1]

    @property
    def mean_tokens(self) -> float:
        return sum(n_tokens for _, n_tokens in self.clips) / len(self.clips)


def decode_options(n_tokens: int, n_beams: int = 1) -> DecodeOptions:
    """The options of a request that is decoded to at most this many tokens."""
    sampling = Sampling(beam_size=n_beams)
    return DecodeOptions(language="en", timestamps=False, max_tokens=n_tokens, sampling=sampling)


@cache
def _noise(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 0.1, WINDOW_SAMPLES).astype(np.float32)
