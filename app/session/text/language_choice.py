"""Which language each window of a channel is decoded in, where the client leaves that to the detector.

The detector's answer for one window is weak evidence if little was spoken. So evidence is added up over the windows of
the channel, and the language changes only where the evidence for another one passes a margin. The engine compares the
languages of a window itself, with the probabilities of that window and the bias that this module gives it: one decoding
is enough, whether the language changes or not.

It is pure: it knows neither audio nor time.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tutti_server.engine import api

MARGIN = 4.0
"""The evidence that changes a settled language. Evidence is log-odds multiplied by seconds of speech.

The log-odds of a window are at most 3.0 (`api.LEAST_LANGUAGE_PROBABILITY`). So less than `MIN_CHANGE_S` of
speech never changes the language by itself, however certain the detector is of a mumbled "ja".
"""
MAX_LOG_ODDS = -math.log(api.LEAST_LANGUAGE_PROBABILITY)
"""The most evidence of a second of speech."""
MIN_CHANGE_S = MARGIN / MAX_LOG_ODDS
"""The least speech that can change a settled language, in seconds (1.3 s)."""
LOCK_MARGIN = 9.0
"""The evidence that decides once and for all: at least 3 s of clear speech, as no later speech can mend it."""
MAX_SETTLING_S = 30.0
"""Speech after which the likeliest language is settled, even if others are nearly as likely, in seconds."""
MAX_DOUBT_S = 3.0
"""Speech after which text becomes stable although its language is in doubt, in seconds: captions must not wait longer.

No window of less speech than `MIN_CHANGE_S` can change the language, so the limit must be well above that.
"""
MIN_LEAD = 1.5
"""The evidence by which a language must be ahead of all others, or it is in doubt: half a second of clear speech."""
DOUBT_LOG_ODDS = math.log(2)
"""A language is in doubt where the detector finds another one more likely by these log-odds (2 to 1)."""
MIN_SPEECH_S = 0.1
"""The least speech that a window is weighed with, in seconds; the detector may have found none in forced windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageRequest:
    """What the client and the model leave open of the language."""

    named: str | None = None
    """The language of all windows; `None` where it is detected, or where the model cannot be given one."""
    candidates: tuple[str, ...] = ()
    """The languages to choose among. Empty where nothing is to be chosen."""
    locks: bool = False
    """Whether the language is decided once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageEvidence:
    """What the windows of a channel so far say of its language."""

    language: str | None = None
    """The likeliest language; `None` before the first window with speech."""
    is_settled: bool = False
    """Whether the language changes only past the margin. Before that it is the likeliest by all evidence."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The evidence for each language.

    Before the language is settled: all of it. Afterwards: how far each other language is ahead of the settled one, by
    the windows since it was last equal; never below 0, so that what was spoken an hour ago is forgotten.
    """
    speech_s: float = 0.0
    """Seconds of speech before the language was settled."""

    def totals(self, probabilities: Mapping[str, float], speech_s: float) -> dict[str, float]:
        """The evidence for each candidate, that of a further window included; the highest is its language."""
        return {
            language: self.advantage(language) + speech_s * _log(probability)
            for language, probability in probabilities.items()
        }

    def advantage(self, language: str) -> float:
        """The evidence for a language before the window that is to be decided."""
        return MARGIN if self.is_settled and language == self.language else self.scores.get(language, 0.0)

    def after(self, probabilities: Mapping[str, float], speech_s: float, margin: float) -> "LanguageEvidence":
        """The evidence after a further window.

        Args:
            probabilities: of each candidate in the window.
            margin: the evidence by which a language must be ahead of all others to be settled.
        """
        if self.is_settled and self.language in probabilities:
            return self._after_settled(probabilities, speech_s)
        scores = self.totals(probabilities, speech_s)
        language = max(scores, key=scores.__getitem__)
        speech_s += self.speech_s
        if _lead(scores, language) >= margin or speech_s >= MAX_SETTLING_S:
            return LanguageEvidence(language=language, is_settled=True)
        return LanguageEvidence(language=language, scores=scores, speech_s=speech_s)

    def _after_settled(self, probabilities: Mapping[str, float], speech_s: float) -> "LanguageEvidence":
        own = speech_s * _log(probabilities[self.language or ""])
        scores = {
            language: max(0.0, self.scores.get(language, 0.0) + speech_s * _log(probability) - own)
            for language, probability in probabilities.items()
            if language != self.language
        }
        best = max(scores, key=scores.__getitem__, default=None)
        if best is not None and scores[best] > MARGIN:
            return LanguageEvidence(language=best, is_settled=True)
        return replace(self, scores=scores)


class ChannelLanguage:
    """The language of one channel: what the engine is asked for each window, and what its answers change."""

    def __init__(self, request: LanguageRequest, delay: int = 1, before: str | None = None) -> None:
        """Make the language of a channel.

        Args:
            delay: a window is decided by the evidence of all windows but this many before it, if these are not done.
                Where finals run side by side, and no interim does, it is the number of finals: then the language of a
                window does not depend on which of them is done first.
            before: the language of the session that this one goes on after, if any.
        """
        self._request = request
        evidence = LanguageEvidence()
        if before is not None and before in request.candidates:
            # A language that is to be locked must still be confirmed.
            scores = {before: MARGIN} if request.locks else {}
            evidence = LanguageEvidence(language=before, is_settled=not request.locks, scores=scores)
        self._evidence = deque([evidence] * delay, maxlen=delay)
        """The evidence after each of the last windows, the newest last."""

    @property
    def evidence(self) -> LanguageEvidence:
        """The evidence of all windows that are done."""
        return self._evidence[-1]

    @property
    def is_detected(self) -> bool:
        """Whether the detector is asked for the language of a window."""
        return len(self._request.candidates) > 1 and not self.is_locked

    @property
    def is_locked(self) -> bool:
        """Whether the language was decided once and for all."""
        return self._request.locks and self.evidence.is_settled

    @property
    def must_wait(self) -> bool:
        """Whether a final waits for the finals before it, because they may decide its language once and for all."""
        return self._request.locks and self.is_detected

    def for_interim(self, options: api.DecodeOptions, speech_s: float, fixed: str | None) -> api.DecodeOptions:
        """The options of an interim, with what finds its language, unless stable text has `fixed` it."""
        if fixed is not None:
            return replace(options, language=fixed)
        return self._open(options, speech_s, self.evidence)

    def for_final(
        self, options: api.DecodeOptions, speech_s: float, fixed: str | None, n_before: int
    ) -> api.DecodeOptions:
        """The options of a final. The engine reports the probabilities even where the language is fixed.

        Args:
            options, speech_s, fixed: as for an interim.
            n_before: how many windows before it are not done.
        """
        if fixed is not None:
            return replace(options, language=fixed, languages=self._request.candidates if self.is_detected else ())
        return self._open(options, speech_s, self._evidence[min(n_before - len(self._evidence), -1)])

    def for_missed(self, options: api.DecodeOptions, speech_s: float, language: str | None) -> api.DecodeOptions:
        """The options of speech that the decoding of its window in `language` has missed: it may be in another one."""
        if not self.is_detected or language is None:
            return replace(options, language=language)
        return self._open(options, speech_s, LanguageEvidence(language=language, is_settled=True))

    def _open(self, options: api.DecodeOptions, speech_s: float, evidence: LanguageEvidence) -> api.DecodeOptions:
        if not self.is_detected:
            return replace(options, language=evidence.language if self.is_locked else self._request.named)
        candidates = self._request.candidates
        bias = {each: evidence.advantage(each) / max(speech_s, MIN_SPEECH_S) for each in candidates}
        return replace(
            options,
            language=None,
            languages=candidates,
            language_bias=tuple((language, value) for language, value in bias.items() if value),
        )

    def is_in_doubt(self, done: api.DoneEvent, speech_s: float) -> bool:
        """Whether more speech may well show that an interim was decoded in the wrong language.

        Its text must not become stable, because the final text of the window would be forced to begin with it.
        """
        probabilities = done.language_probabilities
        if not (self.is_detected and probabilities and done.language) or speech_s >= MAX_DOUBT_S:
            return False
        if _log(max(probabilities.values())) - _log(probabilities[done.language]) > DOUBT_LOG_ODDS:
            return True
        return _lead(self.evidence.totals(probabilities, speech_s), done.language) < MIN_LEAD

    def add(self, probabilities: Mapping[str, float] | None, speech_s: float) -> None:
        """Note what the detector found in a final window that has text. Windows are added in their order."""
        if not (probabilities and self.is_detected and speech_s):
            return
        newest = self.evidence.after(probabilities, speech_s, LOCK_MARGIN if self._request.locks else MARGIN)
        self._evidence.append(newest)
        if self.is_locked:
            self._evidence.extend([newest] * (self._evidence.maxlen or 1))


@dataclass(slots=True)
class UtteranceLanguage:
    """The language of one utterance, by the windows that were decoded for it."""

    channel: ChannelLanguage
    """What decides the language of its windows."""
    _n_letters: Counter[str] = field(default_factory=Counter)
    """How much of its text is in each language."""
    _probabilities: dict[str, float] = field(default_factory=dict)
    """What the detector found for each of them, last."""

    def add(self, language: str | None, probability: float | None, text: str) -> None:
        """Note that a text of the utterance is in a language, and what the detector found for it, if it was asked."""
        if language is None:
            return
        self._n_letters[language] += len(text)
        if probability is not None:
            self._probabilities[language] = round(probability, 3)

    @property
    def language(self) -> str | None:
        """The language of most of the text; `None` if it is not known."""
        return max(self._n_letters, key=self._n_letters.__getitem__, default=None)

    def probability(self, language: str | None) -> float | None:
        """The probability that the detector found for a language, 0 to 1; `None` if it was not asked."""
        return self._probabilities.get(language) if language else None


def _log(probability: float) -> float:
    return math.log(max(probability, api.LEAST_LANGUAGE_PROBABILITY))


def _lead(scores: Mapping[str, float], language: str) -> float:
    others = (score for other, score in scores.items() if other != language)
    return scores[language] - max(others, default=-math.inf)
