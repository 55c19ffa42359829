"""What the requests of a benchmark ask of the engine: windows of noise, and how many tokens each is decoded to."""

from dataclasses import dataclass

import numpy as np

from tutti_server.engine.api import SAMPLE_RATE, DecodeOptions, Sampling, Window


@dataclass(frozen=True, slots=True)
class Work:
    """Requests of the same length."""

    audio_s: float
    n_tokens: int
    """The tokens that a request is decoded to, its end token included."""
    n_beams: int = 1

    def window(self, index: int) -> Window:
        """A window of noise as loud as speech, with different noise for each index.

        Its text is requested at the end only, as the service does.
        """
        samples = np.random.default_rng(index).normal(0, 0.1, round(self.audio_s * SAMPLE_RATE)).astype(np.float32)
        sampling = Sampling(beam_size=self.n_beams)
        options = DecodeOptions(language="en", timestamps=False, max_tokens=self.n_tokens, sampling=sampling)
        return Window(samples=samples, session="", options=options)
