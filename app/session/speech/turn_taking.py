"""Decides at a pause whether the speaker has finished, and how long the silence must be that ends the utterance.

It is a pure function of the evidence: the text so far, how sure the engine is of its end, and, where an operator has
one, what a model of the audio says. The confidence is a logistic function of a few named features. Their weights were
fitted on made recordings whose pauses are known.
"""

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.messages.commands import Endpointing
from tutti_server.app.session.speech.turn_words import SPOKEN_NUMBERS, UNFINISHED_WORDS
from tutti_server.engine.api import SAMPLE_RATE

AUDIO_SAMPLES = 8 * SAMPLE_RATE
"""The most audio before a pause that a model of the audio hears: 8 s."""
CLOSING = (".", "!", "?", "。", "！", "？", "।", "؟")
"""Punctuation that closes a sentence."""
QUESTION = ("?", "？", "؟")
"""Punctuation that closes a question."""
TRAILING = ("...", "…", "-", "–", "—", ",", ";", ":", "،", "、")
"""Endings of a text that goes on. A model that was trained on subtitles writes dots where a speaker breaks off."""
MOST_DOUBT = 0.5
"""Minus the log-probability of closing punctuation; what is above counts as this."""
USUAL_DOUBT = 0.1
"""The doubt that is assumed where the punctuation was forced, so that its probability is not known."""
MOST_SYMBOLS = 12
"""Numbers and letters of an utterance; more count as this many. No telephone number has more digits."""
TRUSTED_LOGPROB, IGNORED_LOGPROB = -0.5, -0.7
"""A text whose mean log-probability is at least the first is full evidence, and at most the second is none.

With the demo model of that time, a Whisper of 11 M parameters, 9 of 10 hypotheses of speech like that of its training
were above the first, and 2 of 3 hypotheses of other speech below the second.
"""
LEAST_AUDIO_PROBABILITY = 0.02
"""How sure a model of the audio may be, so that no other evidence is ever without effect."""
WEIGHTS: Mapping[str, float] = {
    "bias": -0.83,
    "closed": 2.93,
    "question": 1.35,
    "close_doubt": -2.79,
    "unfinished": -1.61,
    "symbol": -1.59,
    "symbols": -3.42,
    "closed_symbols": -0.54,
    "n_symbols": 0.31,
}
"""The weights of the features that `find_features` names. A pause inside a number counted three times in the fit."""
ADAPTIVE_MIN_SILENCE_MS, ADAPTIVE_SILENCE_MS = 300, 700
"""The options `min_silence_ms` and `silence_ms` of mode `adaptive` where the client leaves the mode to the service.

Half of the turns of people end as soon as after a fixed silence of 500 ms, and fewer sentences are cut:
docs/results/accuracy.md.
"""
TurnScorer = Callable[[Samples], Awaitable[float | None]]
"""Runs an operator's model over the audio before a pause, together with that of other sessions.

It gives the probability that the turn has ended, 0 to 1; `None` if the model failed.
"""
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseEvidence:
    """What is known at a pause of the utterance before it."""

    text: str
    """The text of the utterance so far, with punctuation as the model writes it."""
    language: str | None = None
    """The language of the text; `None` if it is not known."""
    last_text_logprob: float | None = None
    """The log-probability of the last token of the text; `None` if it was not sampled. See `engine/api.py`."""
    avg_logprob: float = 0.0
    """The mean log-probability of the tokens of the text: how sure the model is of what it has written."""
    audio_probability: float | None = None
    """The probability that the turn has ended, by a model of the audio; `None` without one."""


def confidence_of(evidence: PauseEvidence) -> float:
    """The confidence that a speaker who pauses has finished, 0 to 1."""
    features = find_features(evidence)
    log_odds = sum(WEIGHTS[name] * value for name, value in features.items()) * _trust(evidence.avg_logprob)
    if evidence.audio_probability is not None:
        # Text and audio count as independent witnesses.
        lowest = LEAST_AUDIO_PROBABILITY
        log_odds += _log_odds(min(max(evidence.audio_probability, lowest), 1 - lowest))
    return _logistic(log_odds)


def required_silence_ms(confidence: float, endpointing: Endpointing) -> int:
    """How long the silence must be that ends the utterance, in milliseconds.

    It is `silence_ms` at the confidence `end_confidence`. It falls to `min_silence_ms` towards the confidence 1, and
    rises to `max_silence_ms` towards 0.

    Args:
        confidence: that the speaker has finished, 0 to 1.
    """
    least, most = endpointing.min_silence_ms, endpointing.max_silence_ms
    usual = min(max(endpointing.silence_ms, least), most)
    # A threshold of 0.5 leaves the confidence as it is; a higher one needs more evidence for the same silence.
    confidence = _logistic(_log_odds(confidence) - _log_odds(endpointing.end_confidence))
    if confidence >= 0.5:
        return round(usual + (least - usual) * (2 * confidence - 1))
    return round(most + (usual - most) * 2 * confidence)


def find_features(evidence: PauseEvidence) -> dict[str, float]:
    """The evidence of text and engine in numbers; most are 1 where the name holds, and 0 where it does not."""
    text = evidence.text.rstrip()
    words = [word.lower() for word in _WORD.findall(text)]
    is_trailing = text.endswith(TRAILING)
    is_closed = text.endswith(CLOSING) and not is_trailing
    doubt = USUAL_DOUBT if evidence.last_text_logprob is None else min(-evidence.last_text_logprob, MOST_DOUBT)
    unfinished = UNFINISHED_WORDS.get(evidence.language or "", frozenset())
    are_symbols = [_is_symbol(word, evidence.language) for word in words]
    n_last = sum(takewhile(bool, reversed(are_symbols)))
    return {
        "bias": 1.0,
        "closed": float(is_closed),
        "question": float(text.endswith(QUESTION)),
        "close_doubt": doubt if is_closed else 0.0,
        "unfinished": float(is_trailing or (bool(words) and words[-1] in unfinished)),
        "symbol": float(n_last == 1),
        "symbols": float(n_last > 1),
        "closed_symbols": float(n_last > 1 and is_closed),
        "n_symbols": float(min(sum(are_symbols), MOST_SYMBOLS)) if n_last > 1 else 0.0,
    }


def _trust(avg_logprob: float) -> float:
    """How much the text counts: a model that doubts what it has written does not know whether it is complete."""
    return min(max((avg_logprob - IGNORED_LOGPROB) / (TRUSTED_LOGPROB - IGNORED_LOGPROB), 0.0), 1.0)


def _is_symbol(word: str, language: str | None) -> bool:
    """Whether a word may be a part of a number or of a code: digits, a number word, a single letter."""
    spoken = SPOKEN_NUMBERS.get(language or "", frozenset())
    return (len(word) == 1 and word.isalnum()) or any(map(str.isdigit, word)) or word in spoken


def _logistic(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


def _log_odds(probability: float) -> float:
    tiny = 1e-6
    probability = min(max(probability, tiny), 1 - tiny)
    return math.log(probability / (1 - probability))
