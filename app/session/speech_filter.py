"""Whether what the model read is speech at all: its own doubts have a say before text is shown."""

from dataclasses import dataclass

# Timestamps are this far off at times: a short word may be given no time at all.
TIMESTAMP_SLACK_S = 0.3


@dataclass(frozen=True, slots=True)
class SpeechFilter:
    """The reference's thresholds where it has one. Source: openai/whisper, whisper/transcribe.py."""

    no_speech_threshold: float = 0.6
    """Above this the model thinks that nobody speaks …"""
    no_speech_logprob_threshold: float = -0.8
    """… and below this its text has nothing to say against it. The reference has -1, for readings of 30 s."""
    logprob_threshold: float = -1.0
    """Below this the model does not trust its text …"""
    sure_threshold: float = 0.1
    """… and it stands only where the model has no more doubt than this that somebody speaks. Not from the reference:
    chosen on the clips of which `docs/design.md` tells."""
    blip_s: float = 0.6
    """Speech as short as this may be a bleat or a knock …"""
    blip_logprob_threshold: float = -0.6
    """… and is one if the model trusts its text less than this."""
    fastest_letters_per_s: float = 30.0
    """Nobody speaks faster, but readings at high temperatures do."""
    repetitive_ratio: float = 1.8
    """A segment that compresses better than this says the same several times …"""
    repetitive_letters_per_s: float = 20.0
    """… and was not said so often if it is so fast: of real speech that the model trusts, the fastest has as much."""
    compression_ratio_threshold: float = 2.4
    """A reading that compresses better than this repeats itself."""

    def is_speech(self, text: str, no_speech_prob: float, avg_logprob: float) -> bool:
        """False for text of a window that the model takes for silence, and for punctuation alone.

        The less it trusts the text, the surer it must be that somebody speaks.
        """
        is_doubted = no_speech_prob > self.no_speech_threshold and avg_logprob < self.no_speech_logprob_threshold
        is_guessed = no_speech_prob > self.sure_threshold and not self.is_trusted(avg_logprob)
        return not (is_doubted or is_guessed) and any(map(str.isalnum, text))

    def is_too_short(self, speech_s: float, avg_logprob: float) -> bool:
        """Whether what the detector took for so much speech was too short, and is read too doubtfully, to be any."""
        return speech_s < self.blip_s and avg_logprob < self.blip_logprob_threshold

    def is_sparse_low_confidence(self, is_sparse: bool, avg_logprob: float) -> bool:
        """Whether the text, too short for the speech that it stands for, is only what the model says for want of words.

        The threshold is that of silence: both say that the sound holds no words.
        """
        return is_sparse and avg_logprob < self.no_speech_logprob_threshold

    def is_implausibly_dense(
        self, n_letters: int, length_s: float, avg_logprob: float, compression_ratio: float
    ) -> bool:
        """Whether more letters than anybody could say are made up for so little sound. Other text that the model trusts
        may be a recording played faster.
        """
        is_repetitive = compression_ratio > self.repetitive_ratio
        fastest = self.repetitive_letters_per_s if is_repetitive else self.fastest_letters_per_s
        is_too_much = n_letters > fastest * (length_s + TIMESTAMP_SLACK_S)
        return is_too_much and (is_repetitive or not self.is_trusted(avg_logprob))

    def is_silence(self, no_speech_prob: float) -> bool:
        """Whether the model thinks that nobody speaks, be there text or none."""
        return no_speech_prob > self.no_speech_threshold

    def is_speech_after_all(self, text: str, no_speech_prob: float, avg_logprob: float) -> bool:
        """The same where a first reading found nothing: there, either of its doubts is enough."""
        is_doubted = no_speech_prob > self.no_speech_threshold or avg_logprob < self.logprob_threshold
        return not is_doubted and any(map(str.isalnum, text))

    def is_trusted(self, avg_logprob: float) -> bool:
        """Whether a reading may fix what is said; below the threshold the reference would decode again."""
        return avg_logprob >= self.logprob_threshold

    def is_loop(self, compression_ratio: float) -> bool:
        return compression_ratio > self.compression_ratio_threshold
