"""Speech of the synthesisers; where they were not made, only what is done with it."""

from pathlib import Path

import numpy as np
import pytest

from training.evaluation.held_out import EDGE_S, PEAK, TRAINED, UNSEEN, Voices, clip_of, own_sentences
from training.speech.speak import has_synthesisers
from training.speech.voices import Utterance

ROOT = Path(__file__).parents[3] / "build/training/synthesisers"
needs_synthesisers = pytest.mark.skipif(
    not has_synthesisers(ROOT), reason=f"needs the synthesisers in {ROOT}: bash training/synthesisers.sh"
)


def test_a_clip_knows_when_its_speech_and_words_begin() -> None:
    """Quiet around the speech is cut off, and the times are those of the clip at 16 kHz."""
    sample_rate = 22_050
    tone = (8000 * np.sin(np.arange(sample_rate))).astype(np.int16)
    quiet = np.zeros(sample_rate // 2, np.int16)
    utterance = Utterance(np.concatenate((quiet, tone, quiet)), sample_rate, [len(quiet), len(quiet) + len(tone) // 2])
    clip = clip_of("clip", "voice", "one two", utterance)
    assert clip.audio_s == pytest.approx(1.0 + 2 * EDGE_S, abs=0.002)
    assert clip.utterances[0].start_s == EDGE_S and clip.utterances[0].end_s == pytest.approx(1.0 + EDGE_S, abs=0.002)
    assert clip.word_starts_s == pytest.approx((EDGE_S, 0.5 + EDGE_S), abs=0.002)
    assert np.abs(clip.samples).max() == pytest.approx(PEAK)


def test_silence_is_no_clip() -> None:
    assert clip_of("clip", "voice", "one", Utterance(np.zeros(1000, np.int16), 16_000)).audio_s == 0


@needs_synthesisers
def test_every_voice_speaks_and_says_the_same_again() -> None:
    """The same call gives the same samples, whatever was said before."""
    voices = Voices(ROOT, 1)
    texts = own_sentences()[: len(TRAINED | UNSEEN)]
    first = voices.in_turn(texts, list(TRAINED | UNSEEN))
    assert [clip.text for clip in first] == texts
    assert {clip.group for clip in first} == set(TRAINED | UNSEEN)
    assert all(0.5 < clip.audio_s < 10 for clip in first)
    again = voices.in_turn(texts, list(TRAINED | UNSEEN))
    assert all(np.array_equal(a.samples, b.samples) for a, b in zip(first, again, strict=True))


@needs_synthesisers
def test_espeak_tells_when_words_begin() -> None:
    """Every word begins inside the clip, behind the one before; sentences of which it does not are left out."""
    (clips,) = Voices(ROOT, 1).timed([own_sentences()[:8]], [("en-us", 175, 50)])
    assert len(clips) >= 4
    for clip in clips:
        starts = clip.word_starts_s
        assert len(starts) == len(clip.text.split())
        assert starts[0] < 0.1 and starts[-1] < clip.audio_s and list(starts) == sorted(starts)
