"""Which readings of a window are tried, and which one counts. Plain Python.

Source: openai/whisper, whisper/transcribe.py, `decode_with_fallback`; where no reading is good enough the likeliest
counts instead of the last, as in faster-whisper.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from engine.api import DecodeOptions, Sampling

Reading = TypeVar("Reading")

_SEEDS_APART = 1_000_003


@dataclass(frozen=True, slots=True)
class DecodingAttempt:
    """One way to read a window."""

    temperature: float
    seed: int
    has_previous_text: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What tells whether a reading is any good."""

    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    is_repetitive: bool

    def is_good(self, sampling: Sampling) -> bool:
        if self.no_speech_prob > sampling.no_speech_threshold and self.avg_logprob < sampling.logprob_threshold:
            # Nobody speaks; reading on would only make words up.
            return True
        is_repetitive = self.is_repetitive or self.compression_ratio > sampling.compression_ratio_threshold
        return not is_repetitive and self.avg_logprob >= sampling.logprob_threshold


class TemperatureFallback(Generic[Reading]):
    """The readings of one window. `present` is the attempt to make; `judge` says what to do with what came of it."""

    def __init__(self, options: DecodeOptions) -> None:
        self._sampling = options.sampling
        self._has_text_to_drop = bool(options.previous_text or options.hotwords)
        self._has_previous_text = True
        self._at = 0
        """Which temperature."""
        self._n_tried = 0
        self._here: list[tuple[Outcome, Reading]] = []
        """The readings at this temperature."""
        self._all: list[tuple[Outcome, Reading]] = []
        self.present = self._attempt()

    @property
    def are_held(self) -> bool:
        """Whether nothing may be handed out before the last one is judged. Else the first one counts, whatever it is
        like, unless it goes round in circles.
        """
        sampling = self._sampling
        return len(sampling.temperatures) > 1 or (sampling.best_of > 1 and sampling.temperatures[0] > 0)

    def judge(self, outcome: Outcome, reading: Reading, *, may_drop_previous_text: bool) -> Reading | None:
        """Take in what the present attempt gave. Returns the reading that counts; `None` to make the next attempt.

        Args:
            may_drop_previous_text: a loop may be read again, once, without the text that may have led into it.
        """
        if outcome.is_repetitive and may_drop_previous_text and self._has_text_to_drop:
            self._has_text_to_drop, self._has_previous_text = False, False
            self.present = self._attempt()
            return None
        self._here.append((outcome, reading))
        self._all.append((outcome, reading))
        sampling = self._sampling
        n_wanted = sampling.best_of if self.present.temperature > 0 else 1
        if len(self._here) >= n_wanted:
            best, best_reading = self._likeliest(self._here)
            if best.is_good(sampling):
                return best_reading
            if self._at + 1 == len(sampling.temperatures):
                return self._likeliest(self._all)[1]
            self._at, self._here = self._at + 1, []
        self.present = self._attempt()
        return None

    def _attempt(self) -> DecodingAttempt:
        seed = self._sampling.seed * _SEEDS_APART + self._n_tried
        self._n_tried += 1
        return DecodingAttempt(self._sampling.temperatures[self._at], seed, self._has_previous_text)

    def _likeliest(self, readings: list[tuple[Outcome, Reading]]) -> tuple[Outcome, Reading]:
        # A loop was cut to its first round, which is better than what is drawn at high temperatures.
        most = self._sampling.compression_ratio_threshold
        return max(readings, key=lambda each: (each[0].compression_ratio <= most, each[0].avg_logprob))
