"""How many beams decode final texts: several while the engine has time for them."""

import math
from dataclasses import replace

from tutti_server.engine import api

RECORDING_BEAMS = 5
"""The beams where neither operator nor client has chosen, as in openai/whisper and faster-whisper.

Whisper base makes 10.7 % word errors with them in files and 12.5 % without, on 2,768 words of people. Files take 1.3
times the processor time on a CPU. On one H200, 64 windows at a time take 1.4 times as long with large-v3, and 1.8 times
with base (docs/results/gpu.md).
"""
SURE_LOGPROB = math.log(0.5)
"""On a CPU, beams begin at the first text token that is less likely than this.

2,768 words of people, Whisper base adapted, one H100: 10.5 % errors in files and 11.1 % live, and 10.7 and 11.1 % where
beams decode every window from its beginning. Files take 0.92 times the processor time on two cores. On a GPU the second
prefill costs more than the steps before it with fewer rows save.
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


def recording_beams(model: api.ModelInfo) -> int:
    """Return the beams of recordings where nobody has chosen."""
    return min(RECORDING_BEAMS, model.n_slots)


def spare_beams(model: api.ModelInfo) -> int:
    """Return the beams of live finals where nobody has chosen, while the engine has time: none on a GPU.

    With 250 sessions of turbo in full context on an H200, they cost a twentieth of the interims, and finals 0.05 s.
    """
    return recording_beams(model) if model.device == "cpu" else 1


def with_beams(sampling: api.Sampling, beam_size: int, model: api.ModelInfo) -> api.Sampling:
    """Return the sampling with this number of beams, which begin on a CPU where greedy decoding is not sure."""
    waits = beam_size > 1 and model.device == "cpu"
    return replace(sampling, beam_size=beam_size, sure_logprob=SURE_LOGPROB if waits else None)


class FinalBeams:
    """The beams of the final texts of one session. Re-decodes of missed speech are always greedy."""

    def __init__(self, busy: api.Sampling, spare: api.Sampling | None = None) -> None:
        """Choose `spare` while the engine has time, by default the same as `busy`."""
        self._busy = busy
        self._spare = spare or busy
        self._answer_s = 0.0
        """How long an interim takes, from its request to its answer, averaged."""

    @property
    def now(self) -> api.Sampling:
        """The sampling of a window that is submitted now."""
        return self._spare if self._answer_s <= MAX_ANSWER_S else self._busy

    def note_interim(self, timing: api.WindowTiming | None) -> None:
        """Note how long the engine took for an interim; `None` if it does not say."""
        if timing:
            took_s = timing.queued_s + timing.encode_s + timing.prefill_s + timing.decode_s
            self._answer_s += (took_s - self._answer_s) / N_SMOOTHED
