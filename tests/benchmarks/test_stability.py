"""Live text is measured in audio time."""

import numpy as np

from benchmarks import stability
from benchmarks.files.labelled_clips import Clip
from benchmarks.live.live_text import ReaderFigures
from benchmarks.live.text_runs import Mode, run_clip
from tests.fakes import FakeTranscriber, LevelDetector, said, silence, speech
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.messages import commands

NUMBERS = [1, 2, 3, 4, 5, 6]
SPEECH = np.concatenate((silence(0.3), speech(NUMBERS), silence(1.0)))
MODES = stability.parse_modes("agreement,none", "1")
AGREEMENT, NONE, FILE = MODES
ENDPOINTING = commands.Endpointing()
PCM = np.rint(SPEECH * 32768).astype(np.int16)
SPOKEN = Clip(name="made up", kind="synth", channels=(PCM,), texts=(said(NUMBERS),))
CONFIG = SessionConfig(make_detector=LevelDetector)


async def test_a_clip_runs_live_and_as_a_file() -> None:
    """Every run gives the same. With interims words are stable before the final, without they come with it."""
    first, again = [await run_clip(FakeTranscriber(), SPOKEN, MODES, CONFIG, ENDPOINTING) for _ in range(2)]
    assert first == again
    assert [result.texts for result in first.values()] == [[said(NUMBERS)]] * 3
    live, final_only = first[AGREEMENT].figures, first[NONE].figures
    # An interim ends inside the second, the third and the sixth word, which the engine then reads as other words.
    assert (live.n_utterances, live.n_words, live.n_changed, live.n_flashed) == (1, 6, 3, 0)
    assert all(a <= b for a, b in zip(live.shown_s, live.stable_s, strict=True))
    assert all(a < b for a, b in zip(live.stable_s[:5], final_only.stable_s[:5], strict=True))
    assert live.first_right_s < final_only.first_right_s
    assert first[FILE].figures == ReaderFigures()


async def test_a_mode_has_its_beams_and_its_policy() -> None:
    """Interims are greedy; without stable words no window has a forced prefix."""
    engine = FakeTranscriber()
    await run_clip(engine, SPOKEN, [Mode("agreement", 5)], CONFIG, ENDPOINTING)
    assert any(window.options.prefix for window in engine.windows)
    beams = {window.is_interim: window.options.sampling.beam_size for window in engine.windows}
    assert beams == {True: 1, False: 5}
    engine = FakeTranscriber()
    await run_clip(engine, SPOKEN, [Mode("never", 2)], CONFIG, ENDPOINTING)
    assert any(window.is_interim for window in engine.windows)
    assert not any(window.options.prefix for window in engine.windows)
