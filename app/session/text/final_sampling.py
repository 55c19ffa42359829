"""How the tokens of final texts are drawn: with beams while the engine has time for them."""

import math
from dataclasses import replace

from tutti_server.engine import api

CPU_BEAMS = 5
"""The beams on a CPU where neither operator nor client has chosen, as in openai/whisper and faster-whisper.

Whisper base makes 10.7 % word errors with them in files and 11.4 % without, on 3,111 words of people, and live 11.1 and
11.7 %. Files take 1.3 times the processor time.
"""
SURE_LOGPROB = math.log(0.5)
"""Beams begin at the first text token that is less likely than this.

2,768 words of people, Whisper base adapted, one H100: 10.5 % errors in files and 11.1 % live, and 10.7 and 11.1 % where
beams decode every window from its beginning. Files take 0.92 times the processor time on two cores.
"""
MAX_ANSWER_S = 0.5
"""The engine has time for the beams of live finals if an interim takes at most this many seconds, its wait included.

A final text with 5 beams takes about twice as long as an interim, and speech has been over for 0.3 s when it is due.
With the embedded model and four streams on two cores, 2,768 words of people have 14.1 % errors with a limit of 0.25 s
and 12.5 with this one. Finals of synthetic dialogues then come 1.0 and 1.3 s after the end of speech (p95), and 0.9
without beams.
"""
N_SMOOTHED = 4
"""The number of interims over which this time is averaged."""


def usual_beams(model: api.ModelInfo) -> int:
    """The beams that a model is worth: `CPU_BEAMS` on a CPU, else 1.

    On a GPU their cost is not measured.
    """
    return min(CPU_BEAMS, model.n_slots) if model.device == "cpu" else 1


def with_beams(sampling: api.Sampling, beam_size: int) -> api.Sampling:
    """Return the sampling with this number of beams, which begin where greedy decoding is not sure."""
    return replace(sampling, beam_size=beam_size, sure_logprob=SURE_LOGPROB if beam_size > 1 else None)


class FinalSampling:
    """How the final texts of one session are decoded. Re-decodes of missed speech are always greedy."""

    def __init__(self, sampling: api.Sampling, spare_beam_size: int = 1) -> None:
        """Make the choice of a session.

        Args:
            sampling: for a busy engine.
            spare_beam_size: the number of beams while the engine has time.
        """
        self._busy = sampling
        self._spare = with_beams(sampling, max(spare_beam_size, sampling.beam_size))
        self._answer_s = 0.0
        """How long an interim takes, from its request to its answer, averaged."""

    @property
    def now(self) -> api.Sampling:
        """For a window that is submitted now."""
        return self._spare if self._answer_s <= MAX_ANSWER_S else self._busy

    def note_interim(self, timing: api.WindowTiming | None) -> None:
        """Note how long the engine took for an interim; `None` if it does not say."""
        if timing:
            took_s = timing.queued_s + timing.encode_s + timing.prefill_s + timing.decode_s
            self._answer_s += (took_s - self._answer_s) / N_SMOOTHED
