"""Applies the hallucination filter to segments and interims, together with the speech detected in their audio.

This module holds no threshold: all thresholds are fields of `HallucinationFilter`.
"""

from tutti_server.app.session.core.windows import EndedWindow, OpenWindow
from tutti_server.app.session.speech.coverage import repeats_neighbour
from tutti_server.app.session.text.hallucination_filter import HallucinationFilter, has_words
from tutti_server.engine import api


def accepts_interim(hallucination_filter: HallucinationFilter, window: OpenWindow, done: api.DoneEvent) -> bool:
    """Whether a hypothesis of the open window may be shown.

    The first words need more confidence than later ones: every later hypothesis may begin with them.
    """
    if hallucination_filter.is_repetitive(done.compression_ratio):
        return False
    if window.stabilizer.tokens:
        return has_words(done.text)
    if hallucination_filter.is_silence(done.no_speech_prob) or not hallucination_filter.may_begin(done.pieces):
        return False
    return hallucination_filter.is_speech(done.text, done.no_speech_prob, api.text_logprob(done.pieces))


def accepts_segment(hallucination_filter: HallucinationFilter, window: EndedWindow, segment: api.Segment) -> bool:
    """Whether a segment of an ended window is sent.

    Text that was shown as stable must not be taken back: after a forced prefix every segment is accepted.
    """
    if window.stabilizer.tokens:
        return True
    assert window.decoding
    return (
        hallucination_filter.is_speech(segment.text, segment.no_speech_prob, segment.text_logprob)
        and not hallucination_filter.is_implausibly_dense(segment)
        and not goes_on_from_refused(hallucination_filter, segment, window.decoding.refused)
    )


def accepts_redecoded(
    hallucination_filter: HallucinationFilter,
    segment: api.Segment,
    refused: str,
    text_before: str,
    following_text: str,
) -> bool:
    """Whether a segment of missed speech that was decoded again is sent: it must say something new.

    This is stricter than for other segments: a high probability of silence is enough to drop it.
    """
    return (
        not hallucination_filter.is_silence(segment.no_speech_prob)
        and hallucination_filter.is_speech(segment.text, segment.no_speech_prob, segment.text_logprob)
        and not hallucination_filter.is_implausibly_dense(segment)
        and not goes_on_from_refused(hallucination_filter, segment, refused)
        and not repeats_neighbour(segment.text, text_before, following_text)
    )


def is_silent(hallucination_filter: HallucinationFilter, window: EndedWindow, done: api.DoneEvent) -> bool:
    """Whether the model took all of the window for silence without being misled by a previous text or a prefix.

    It would give the same answer again, so such a window is not decoded again: noise costs one decoding.
    """
    assert window.decoding
    return not (window.covered or window.decoding.had_context) and hallucination_filter.is_silence(done.no_speech_prob)


def goes_on_from_refused(hallucination_filter: HallucinationFilter, segment: api.Segment, refused: str) -> bool:
    """Whether a segment goes on with what the model has made up before it.

    Args:
        refused: the text of the last segment of the same decoding that was refused; empty if none was. The model is
            sure of a phrase that it repeats.
    """
    if not refused:
        return False
    logprob, threshold = segment.text_logprob, hallucination_filter.after_refused_logprob_threshold
    return (logprob is not None and logprob < threshold) or repeats_neighbour(segment.text, refused, "")
