"""Decides, from the model's own confidence, whether decoded text was spoken or is a hallucination.

A hallucination is text that the model makes up for silence, noise or music. The filter judges text; it does not change
audio.
"""

from dataclasses import dataclass

TIMESTAMP_SLACK_S = 0.3
"""Added to the length of a segment before its letters are counted, in seconds.

Timestamps can be wrong by this much: the model sometimes gives a short word no time at all.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HallucinationFilter:
    """The thresholds that decoded text must pass before a client sees it.

    A threshold has the value of openai/whisper, whisper/transcribe.py, unless its docstring says otherwise.

    The values that are not from there were chosen with the embedded model on the shared test audio. In 54 minutes of
    human and synthetic speech they remove none of the words that the model recognises correctly (see
    `docs/architecture.md`, "Text and its time").
    """

    no_speech_threshold: float = 0.6
    """A probability. Above it the model takes the audio for silence."""
    no_speech_logprob_threshold: float = -0.8
    """A mean log-probability per token. Text below it is dropped where the model takes the audio for silence.

    openai/whisper uses -1, for hypotheses of 30 s of audio.
    """
    logprob_threshold: float = -1.0
    """A mean log-probability per token. Text below it is not trusted: the model itself finds it improbable.

    Such text is shown only if the model is nearly sure that the audio is not silence, and never as the first words of a
    window's interims. openai/whisper would decode the audio again at a higher temperature.
    """
    untrusted_no_speech_threshold: float = 0.1
    """A probability. Text that is not trusted is dropped where the model's probability of silence is above it.

    Not from openai/whisper.
    """
    short_speech_s: float = 0.6
    """Seconds of detected speech. Less than this may be a knock or the cry of an animal. Not from openai/whisper."""
    short_speech_logprob_threshold: float = -0.6
    """A mean log-probability per token. Text below it is dropped if the speech is short. Not from openai/whisper."""
    max_letters_per_s: float = 30.0
    """Letters and digits per second. No person speaks faster, but text drawn at high temperatures is often denser.

    Not from openai/whisper.
    """
    repeated_phrase_ratio: float = 1.8
    """A compression ratio. A segment above it says the same phrase several times. Not from openai/whisper."""
    max_repeated_letters_per_s: float = 20.0
    """Letters and digits per second. A segment that repeats a phrase faster than this was made up.

    This is the fastest pace measured in real speech that the model trusts. Not from openai/whisper.
    """
    compression_ratio_threshold: float = 2.4
    """A compression ratio. A hypothesis above it repeats itself."""

    def is_speech(self, text: str, no_speech_prob: float, avg_logprob: float) -> bool:
        """Whether text may be shown: it has a letter or a digit, and the model does not take its audio for silence.

        The less the model trusts the text, the lower its probability of silence must be.
        """
        is_silent = self.is_silence(no_speech_prob) and avg_logprob < self.no_speech_logprob_threshold
        is_guessed = no_speech_prob > self.untrusted_no_speech_threshold and not self.is_trusted(avg_logprob)
        return not (is_silent or is_guessed) and _has_words(text)

    def is_redecoded_speech(self, text: str, no_speech_prob: float, avg_logprob: float) -> bool:
        """Whether text may be shown for audio in which the first decoding attempt found nothing.

        This is stricter than `is_speech`: either a high probability of silence or a low trust in the text is enough to
        drop it.
        """
        return not self.is_silence(no_speech_prob) and self.is_trusted(avg_logprob) and _has_words(text)

    def is_silence(self, no_speech_prob: float) -> bool:
        """Whether the model takes the audio for silence, whatever text it made."""
        return no_speech_prob > self.no_speech_threshold

    def is_trusted(self, avg_logprob: float) -> bool:
        """Whether the model finds its text probable enough, by `logprob_threshold`."""
        return avg_logprob >= self.logprob_threshold

    def is_too_short(self, speech_s: float, avg_logprob: float) -> bool:
        """Whether `speech_s` seconds of detected speech are too short, and their text is too uncertain, to be shown."""
        return speech_s < self.short_speech_s and avg_logprob < self.short_speech_logprob_threshold

    def is_sparse_low_confidence(self, is_sparse: bool, avg_logprob: float) -> bool:
        """Whether uncertain text is too short for the speech that it stands for.

        The threshold is that of silence, because both mean that the sound holds no words.
        """
        return is_sparse and avg_logprob < self.no_speech_logprob_threshold

    def is_implausibly_dense(
        self, n_letters: int, length_s: float, avg_logprob: float, compression_ratio: float
    ) -> bool:
        """Whether a segment has more letters than a person can say in its time.

        Text that is dense, not repetitive and trusted is kept: a recording may be played faster.
        """
        is_repetitive = compression_ratio > self.repeated_phrase_ratio
        max_per_s = self.max_repeated_letters_per_s if is_repetitive else self.max_letters_per_s
        is_dense = n_letters > max_per_s * (length_s + TIMESTAMP_SLACK_S)
        return is_dense and (is_repetitive or not self.is_trusted(avg_logprob))

    def is_repetitive(self, compression_ratio: float) -> bool:
        """Whether a hypothesis repeats itself."""
        return compression_ratio > self.compression_ratio_threshold


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))
