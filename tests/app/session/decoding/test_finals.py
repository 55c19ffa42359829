"""Which text before a window the model is shown, and which windows wait for others."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.bench import CONFIG, START, Bench, check_promises
from tests.fakes import said, segment, silence, speech
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.core.previous_text import MAX_PREVIOUS_CHARS
from tutti_server.engine import api

WITH_CONTEXT = replace(CONFIG, context="channel", max_finals_in_flight=8)
OFFLINE = replace(START, interim=False, prompt="Names: Kowalski.")


def session_with(*utterances: range) -> Bench:
    """A session with these utterances, none of which the engine has answered."""
    bench = Bench(OFFLINE, WITH_CONTEXT)
    bench.feed(np.concatenate([part for words in utterances for part in (speech(words), silence(0.7))]), answer=False)
    return bench


def made_up(text: str, *, no_speech_prob: float = 0.0, logprob: float = -0.1) -> api.Segment:
    return segment(text, 0.3, 1.4, logprob=logprob, text_logprob=logprob, no_speech_prob=no_speech_prob)


def test_context_reaches_across_utterances() -> None:
    """Every window waits for the one before it. The first is shown the client's prompt, the others the text so far."""
    bench = session_with(range(4), range(4, 8), range(8, 12))
    for _ in range(3):
        assert len(bench.waiting) == 1
        bench.answer_one()
    shown = [window.options.previous_text.strip() for window in bench.windows]
    assert shown == ["Names: Kowalski.", said(range(4)), said(range(8))]
    bench.stop()
    check_promises(bench)
    assert bench.text() == said(range(12))


def test_context_is_the_end_of_the_text() -> None:
    """Its length does not grow with the recording."""
    bench = session_with(*(range(8) for _ in range(60)))
    bench.answer_all()
    shown = [window.options.previous_text for window in bench.windows]
    assert max(map(len, shown)) == MAX_PREVIOUS_CHARS
    assert shown[-1].endswith(f"{said(range(8))} {said(range(8))}")


def test_a_redecode_comes_before_the_next_window() -> None:
    """Its text is shown to the next window; it is shown no text itself."""
    bench = session_with(range(12), range(20, 24))
    bench.answer_one(lost=range(3, 9))
    assert len(bench.waiting) == 1
    bench.answer_one()
    assert [window.options.previous_text.strip() for window in bench.windows] == [
        "Names: Kowalski.",
        "",
        said(range(12)),
    ]


@pytest.mark.parametrize(
    ("segments", "how"),
    [
        ([made_up(" again and again")], {"is_repetitive": True}),
        ([made_up(" again and again")], {"compression_ratio": 3.0}),
        ([], {}),
        ([made_up(" you", no_speech_prob=0.9, logprob=-1.2)], {}),
        ([made_up(" ...")], {}),
    ],
)
def test_a_repetitive_text_or_none_ends_the_context(segments: list[api.Segment], how: dict[str, Any]) -> None:
    """So does one without words, or that was dropped. The next window is shown the client's prompt alone."""
    bench = session_with(range(4), range(4, 6), range(8, 12), range(12, 16))
    bench.answer_one()
    bench.answer_with(*segments, **how)
    bench.answer_all()
    shown = [window.options.previous_text.strip() for window in bench.windows]
    assert shown == ["Names: Kowalski.", said(range(4)), "Names: Kowalski.", said(range(8, 12))]


def test_channels_are_not_shown_the_text_of_others() -> None:
    """The context of one channel is its own text; the windows of the other do not wait for it."""
    left, right = speech(range(4)), speech(range(4, 8))
    pause = silence(0.7)
    one = np.concatenate((left, pause, left, pause))
    other = np.concatenate((right, pause, right, pause))
    bench = Bench(replace(OFFLINE, audio=AudioFormat("pcm_f32le", channels=2)), WITH_CONTEXT)
    bench.feed(np.stack((one, other), axis=1).reshape(-1), answer=False, n_channels=2)
    assert len(bench.waiting) == 2
    bench.answer_all()
    shown = {window.channel: window.options.previous_text.strip() for window in bench.windows}
    assert shown == {0: said(range(4)), 1: said(range(4, 8))}
