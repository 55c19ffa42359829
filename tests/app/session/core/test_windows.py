"""The records of the session core: what speech a window holds, and what missed speech is looked for."""

import numpy as np
import pytest

from tutti_server.app.session.core.windows import (
    MAX_REDECODES,
    SPEECH_GAP_SAMPLES,
    EndedWindow,
    OpenWindow,
    PendingUtterance,
    Redecoding,
    StableText,
    UtteranceOptions,
    WindowKind,
)
from tutti_server.app.session.speech.coverage import MIN_MISSED_SAMPLES, Span
from tutti_server.app.session.speech.endpointing import FRAME_SAMPLES
from tutti_server.app.session.text.language_choice import ChannelLanguage, LanguageRequest, UtteranceLanguage
from tutti_server.app.session.text.stabilizer import Agreement, Stabilizer
from tutti_server.engine.api import SAMPLE_RATE

UTTERANCE = PendingUtterance(
    number=0,
    start=0,
    prompt="",
    options=UtteranceOptions(language=LanguageRequest(), task="transcribe"),
    language=UtteranceLanguage(ChannelLanguage(LanguageRequest())),
)


def open_window(speech: list[Span]) -> OpenWindow:
    return OpenWindow(utterance=UTTERANCE, start=0, speech=speech, stabilizer=Stabilizer(Agreement()))


def ended_window(kind: WindowKind, speech: list[Span], tokens: tuple[int, ...] = ()) -> EndedWindow:
    return EndedWindow(
        utterance=UTTERANCE,
        kind=kind,
        span=(0, SAMPLE_RATE),
        samples=np.zeros(SAMPLE_RATE, dtype=np.float32),
        speech=speech,
        stable=StableText(text="a b", tokens=tokens),
        is_last=True,
    )


def test_speech_goes_on_over_short_gaps() -> None:
    """A gap of `SPEECH_GAP_SAMPLES` or more is silence."""
    window = open_window([(0, 3200)])
    window.extend_speech(3200 + FRAME_SAMPLES)
    window.extend_speech(3200 + FRAME_SAMPLES)
    assert window.speech == [(0, 3200 + FRAME_SAMPLES)]
    later = 3200 + 2 * FRAME_SAMPLES + SPEECH_GAP_SAMPLES
    window.extend_speech(later)
    assert window.speech == [(0, 3200 + FRAME_SAMPLES), (later - FRAME_SAMPLES, later)]


def test_a_cut_divides_speech() -> None:
    window = open_window([(0, 10), (20, 40), (50, 60)])
    assert window.split_speech(30) == [(30, 40), (50, 60)]
    assert window.speech == [(0, 10), (20, 30)]


@pytest.mark.parametrize(
    ("kind", "speech", "tokens", "needs_decoding"),
    [
        (WindowKind.DETECTED, [(0, 10)], (), True),
        (WindowKind.DETECTED, [], (1, 2), True),
        (WindowKind.DETECTED, [], (), False),
        (WindowKind.FORCED, [], (), True),
        (WindowKind.DISCARDED, [(0, 10)], (1, 2), False),
    ],
)
def test_the_kind_of_a_window_decides_whether_it_is_decoded(
    kind: WindowKind, speech: list[Span], tokens: tuple[int, ...], needs_decoding: bool
) -> None:
    assert ended_window(kind, speech, tokens).needs_decoding is needs_decoding


def test_stable_text_is_unsent_until_its_characters_were_sent() -> None:
    window = ended_window(WindowKind.DETECTED, [(0, 10)], (1, 2))
    assert window.unsent_stable == "a b"
    window.n_processed_chars = 2
    assert window.unsent_stable == "b"


def test_missed_speech_is_looked_for_once() -> None:
    """The same stretch is not found a second time, and not more stretches than may be decoded again."""
    redecoding, stretch = Redecoding(), 2 * MIN_MISSED_SAMPLES
    speech = [(0, 10 * stretch)]
    for number in range(MAX_REDECODES):
        found = redecoding.find(speech, 0, (number + 1) * stretch)
        assert found and found.speech == [(number * stretch, (number + 1) * stretch)]
        redecoding.start(found, "after")
        assert redecoding.stretch is found
        redecoding.finish()
        assert redecoding.stretch is None
        assert redecoding.find(speech, 0, (number + 1) * stretch) is None
    assert redecoding.find(speech, 0, 10 * stretch) is None
