"""Decides, from the model's own confidence, whether decoded text was spoken or is a hallucination.

A hallucination is text that the model makes up for silence, noise or music. The filter judges text; it does not change
audio.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

from tutti_server.app.session.speech.coverage import count_letters
from tutti_server.app.session.text.stock_phrases import is_stock_phrase
from tutti_server.engine.api import Piece, Segment

TIMESTAMP_SLACK_S = 0.3
"""Added to the length of a segment before its letters are counted, in seconds.

Timestamps can be wrong by this much: the model sometimes gives a short word no time at all.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HallucinationFilter:
    """The thresholds that decoded text must pass before a client sees it.

    A threshold has the value of openai/whisper, whisper/transcribe.py, unless its docstring says otherwise.

    The values that are not from there were chosen with Whisper base on recordings of people, noise, animals and music.
    """

    text_logprob_threshold: float = -1.3
    """A mean log-probability per word (`api.Segment.text_logprob`). Text below it is not trusted.

    Not from openai/whisper, whose threshold of -1 counts timestamps too: they are uncertain in the shortest texts.
    """
    silent_logprob_threshold: float = -0.8
    """The same where the model takes the audio for silence: where its probability is at least `no_speech_threshold`.

    Between `speech_threshold` and that, the threshold rises in proportion; for a stock phrase alone it is this at once.
    """
    stock_logprob_threshold: float = -1.0
    """The same for a stock phrase alone between `certain_speech_threshold` and `speech_threshold`.

    People who said one had -0.88 and more (51 clips in five languages), music and noise -1.07 and less.
    """
    speech_threshold: float = 0.3
    """A probability of silence. Up to it, it says nothing against the text: short answers of people have as much."""
    certain_speech_threshold: float = 0.07
    """A probability of silence. Up to it somebody speaks, and a doubtful text is better than none.

    In languages that it knows little, the model is unsure of sentences that people can read. Noise and music have more.
    """
    no_speech_threshold: float = 0.6
    """A probability. Above it the model takes the audio for silence."""
    lenient_logprob_threshold: float = -2.0
    """A mean log-probability per word: up to `certain_speech_threshold`, and for a text of at most `short_text_letters`
    up to `speech_threshold`. Not for a stock phrase.
    """
    short_text_letters: int = 12
    """Letters and digits: "Good morning." has 11. The mean over one or two words varies more.

    A letter of Japanese, Chinese or Korean counts as two: it stands for a syllable or a word.
    """
    after_refused_logprob_threshold: float = -0.5
    """A mean log-probability per word. Text below it is not trusted after a segment of its window that was refused."""
    first_word_logprob_threshold: float = -2.0
    """A log-probability (`api.Piece.logprob`). An utterance's interims do not begin with a word below it."""
    max_letters_per_s: float = 30.0
    """Letters and digits per second. No person speaks faster, but text drawn at high temperatures is often denser.

    Not from openai/whisper.
    """
    dense_logprob_threshold: float = -1.0
    """A mean log-probability per word. Text above it may repeat a phrase, or be denser, as when it is played faster."""
    repeated_phrase_ratio: float = 1.8
    """A compression ratio. A segment above it says the same phrase several times. Not from openai/whisper."""
    max_repeated_letters_per_s: float = 20.0
    """Letters and digits per second. A segment that repeats a phrase faster than this was made up.

    This is the fastest pace measured in real speech that the model trusts. Not from openai/whisper.
    """
    compression_ratio_threshold: float = 2.4
    """A compression ratio. A hypothesis above it repeats itself."""

    def is_speech(self, text: str, no_speech_prob: float, text_logprob: float | None) -> bool:
        """Whether text may be shown: it has a letter or a digit, and the model trusts its words.

        Args:
            no_speech_prob: the model's probability that the audio holds no speech.
            text_logprob: as `api.Segment.text_logprob`; `None` for text that was shown before, which is always trusted.
        """
        if not has_words(text):
            return False
        if text_logprob is None:
            return True
        if is_stock_phrase(text):
            return self._accepts_stock_phrase(no_speech_prob, text_logprob)
        return text_logprob >= self._needed_logprob(text, no_speech_prob)

    def _accepts_stock_phrase(self, no_speech_prob: float, text_logprob: float) -> bool:
        """Whether a stock phrase alone may be shown. The model is as sure of one in music as in speech."""
        if self.is_silence(no_speech_prob):
            return False
        if no_speech_prob > self.speech_threshold:
            return text_logprob >= self.silent_logprob_threshold
        is_certain = no_speech_prob <= self.certain_speech_threshold
        return text_logprob >= (self.text_logprob_threshold if is_certain else self.stock_logprob_threshold)

    def _needed_logprob(self, text: str, no_speech_prob: float) -> float:
        if no_speech_prob <= self.speech_threshold:
            is_certain = no_speech_prob <= self.certain_speech_threshold
            is_short = count_letters(text) + sum(map(_is_wide, text)) <= self.short_text_letters
            return self.lenient_logprob_threshold if is_certain or is_short else self.text_logprob_threshold
        share = min((no_speech_prob - self.speech_threshold) / (self.no_speech_threshold - self.speech_threshold), 1.0)
        return self.text_logprob_threshold + share * (self.silent_logprob_threshold - self.text_logprob_threshold)

    def may_begin(self, pieces: Sequence[Piece]) -> bool:
        """Whether the interims of an utterance may begin with these words."""
        first = next((piece.logprob for piece in pieces if piece.at_s is None), None)
        return first is None or first >= self.first_word_logprob_threshold

    def is_silence(self, no_speech_prob: float) -> bool:
        """Whether the model takes the audio for silence, whatever text it made."""
        return no_speech_prob > self.no_speech_threshold

    def is_implausibly_dense(self, segment: Segment) -> bool:
        """Whether a segment has more letters than a person can say in its time, or repeats what is not trusted.

        Text that is dense, not repetitive and trusted is kept: a recording may be played faster.
        """
        is_repetitive = segment.compression_ratio > self.repeated_phrase_ratio
        max_per_s = self.max_repeated_letters_per_s if is_repetitive else self.max_letters_per_s
        most_letters = max_per_s * (segment.end_s - segment.start_s + TIMESTAMP_SLACK_S)
        is_dense = count_letters(segment.text) > most_letters
        is_trusted = segment.text_logprob is None or segment.text_logprob >= self.dense_logprob_threshold
        return (is_dense and (is_repetitive or not is_trusted)) or (is_repetitive and not is_trusted)

    def is_repetitive(self, compression_ratio: float) -> bool:
        """Whether a hypothesis repeats itself."""
        return compression_ratio > self.compression_ratio_threshold


def has_words(text: str) -> bool:
    """Whether a text has a letter or a digit."""
    return any(map(str.isalnum, text))


def _is_wide(letter: str) -> bool:
    return letter.isalnum() and east_asian_width(letter) == "W"
