"""Applies the hallucination filter to segments and interims, together with the speech detected in their audio.

This module holds no threshold: all thresholds are fields of `HallucinationFilter`.
"""

from app.session.coverage import Missed, count_letters, duration, plausible_end, repeats_neighbour
from app.session.hallucination_filter import HallucinationFilter
from app.session.windows import EndedWindow, OpenWindow, WindowKind
from engine import api
from engine.api import SAMPLE_RATE


def accepts_interim(hallucination_filter: HallucinationFilter, window: OpenWindow, done: api.DoneEvent) -> bool:
    """Whether a hypothesis of the open window may be shown.

    The first words need more confidence than later ones. They become stable, and every later hypothesis begins with
    them. With untrusted first words, music was shown as "In the", and a wrong beginning in babble lost the rest of the
    utterance.
    """
    if not hallucination_filter.is_speech(done.text, done.no_speech_prob, done.avg_logprob):
        return False
    if hallucination_filter.is_repetitive(done.compression_ratio):
        return False
    if window.stabilizer.tokens:
        return True
    speech_s = duration(window.speech) / SAMPLE_RATE
    return hallucination_filter.is_trusted(done.avg_logprob) and not hallucination_filter.is_too_short(
        speech_s, done.avg_logprob
    )


def accepts_segment(hallucination_filter: HallucinationFilter, window: EndedWindow, segment: api.Segment) -> bool:
    """Whether a segment of an ended window is sent.

    Text that was shown as stable must not be taken back: after a forced prefix every segment is accepted.
    """
    if window.stable.tokens:
        return True
    speech_s = duration(window.speech) / SAMPLE_RATE
    if window.kind is not WindowKind.FORCED and hallucination_filter.is_too_short(speech_s, segment.avg_logprob):
        return False
    return not _is_implausible(hallucination_filter, window, segment, window.start) and hallucination_filter.is_speech(
        segment.text, segment.no_speech_prob, segment.avg_logprob
    )


def accepts_redecoded(
    hallucination_filter: HallucinationFilter,
    window: EndedWindow,
    stretch: Missed,
    segment: api.Segment,
    following_text: str,
) -> bool:
    """Whether a segment of missed speech that was decoded again is sent: it must say something new."""
    return (
        hallucination_filter.is_redecoded_speech(segment.text, segment.no_speech_prob, segment.avg_logprob)
        and not _is_implausible(hallucination_filter, window, segment, stretch.start)
        and not repeats_neighbour(segment.text, window.utterance.text, following_text)
    )


def is_silent(hallucination_filter: HallucinationFilter, window: EndedWindow, done: api.DoneEvent) -> bool:
    """Whether the model took all of the window for silence without being misled by a previous text or a prefix.

    It would give the same answer again, so such a window is not decoded again: noise costs one decoding.
    """
    assert window.decoding
    return not (window.covered or window.decoding.had_context) and hallucination_filter.is_silence(done.no_speech_prob)


def _is_implausible(
    hallucination_filter: HallucinationFilter, window: EndedWindow, segment: api.Segment, origin: int
) -> bool:
    """Whether a segment has far too little or far too much text for its time.

    Args:
        hallucination_filter: holds the thresholds.
        window: the window that the segment belongs to.
        segment: its times count from `origin`.
        origin: position of the first sample that was decoded.
    """
    start, end = (min(origin + round(at_s * SAMPLE_RATE), window.end) for at_s in (segment.start_s, segment.end_s))
    is_sparse = plausible_end(segment.text, window.speech, start, end) < end
    if hallucination_filter.is_sparse_low_confidence(is_sparse, segment.avg_logprob):
        return True
    length_s = segment.end_s - segment.start_s
    return hallucination_filter.is_implausibly_dense(
        count_letters(segment.text), length_s, segment.avg_logprob, segment.compression_ratio
    )
