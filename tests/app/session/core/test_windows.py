"""What an ended window holds, where a session comes to it seldom."""

import numpy as np
import pytest

from tutti_server.app.session.core.final_beams import FinalBeams
from tutti_server.app.session.core.options import ChannelOptions, SessionConfig, Targets
from tutti_server.app.session.core.windows import EndedWindow, OpenWindow, PendingUtterance, WindowKind
from tutti_server.app.session.messages import commands
from tutti_server.app.session.speech.coverage import Span
from tutti_server.app.session.text.language_choice import ChannelLanguage, LanguageRequest, UtteranceLanguage
from tutti_server.app.session.text.stabilizer import Agreement, Stabilizer
from tutti_server.engine.api import SAMPLE_RATE, Sampling

UTTERANCE = PendingUtterance(
    number=0,
    start=0,
    prompt="",
    options=ChannelOptions(
        start=commands.Start(),
        config=SessionConfig(),
        language=LanguageRequest(),
        targets=Targets(),
        sampling=FinalBeams(Sampling()),
    ),
    language=UtteranceLanguage(ChannelLanguage(LanguageRequest())),
)


def test_a_cut_divides_speech() -> None:
    speech = [(0, 10), (20, 40), (50, 60)]
    window = OpenWindow(utterance=UTTERANCE, start=0, speech=speech, stabilizer=Stabilizer(Agreement()))
    assert window.split_speech(30) == [(30, 40), (50, 60)]
    assert window.speech == [(0, 10), (20, 30)]


@pytest.mark.parametrize(
    ("kind", "speech", "tokens", "needs_decoding"),
    [
        (WindowKind.DETECTED, [(0, 10)], (), True),
        (WindowKind.DETECTED, [], (1, 2), True),
        (WindowKind.DETECTED, [], (), False),
        (WindowKind.MANUAL, [], (), True),
        (WindowKind.DISCARDED, [(0, 10)], (1, 2), False),
    ],
)
def test_the_kind_of_a_window_decides_whether_it_is_decoded(
    kind: WindowKind, speech: list[Span], tokens: tuple[int, ...], needs_decoding: bool
) -> None:
    stabilizer = Stabilizer(Agreement())
    stabilizer.tokens = tokens
    window = EndedWindow(
        utterance=UTTERANCE,
        kind=kind,
        span=(0, SAMPLE_RATE),
        samples=np.zeros(SAMPLE_RATE, dtype=np.float32),
        speech=speech,
        stabilizer=stabilizer,
        is_last=True,
    )
    assert window.needs_decoding is needs_decoding
