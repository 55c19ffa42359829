"""How much of a window is encoded."""

import pytest

from tutti_server.engine.checkpoint.checkpoint import AudioContext
from tutti_server.engine.model.audio_context import LADDER, WindowLengths

FULL = 1_500
TRAINED = AudioContext(min_frames=300, margin_frames=50)
SECOND = 16_000


@pytest.mark.parametrize("choice", ["auto", "interims"])
@pytest.mark.parametrize("is_interim", [False, True])
@pytest.mark.parametrize(("audio_s", "states"), [(0.1, 150), (2.4, 150), (2.6, 160), (29.6, 1_500), (30.0, 1_500)])
def test_a_checkpoint_trained_on_short_windows_encodes_audio_and_margin(
    choice: str, is_interim: bool, audio_s: float, states: int
) -> None:
    lengths = WindowLengths(choice, TRAINED, FULL)  # type: ignore[arg-type]
    assert lengths.n_states(round(audio_s * SECOND), is_interim) == states
    assert not lengths.ladder and not lengths.are_full


@pytest.mark.parametrize(
    ("audio_s", "states"), [(0.1, 200), (3.0, 200), (3.01, 300), (9.0, 500), (9.5, 750), (19.0, 1_000), (19.1, FULL)]
)
def test_an_interim_gets_the_next_length_that_holds_its_margin(audio_s: float, states: int) -> None:
    lengths = WindowLengths("interims", None, FULL)
    assert lengths.n_states(round(audio_s * SECOND), True) == states
    assert lengths.n_states(round(audio_s * SECOND), False) == FULL
    assert not lengths.are_full


@pytest.mark.parametrize(("choice", "trained"), [("auto", None), ("full", None), ("full", TRAINED)])
def test_other_windows_are_full(choice: str, trained: AudioContext | None) -> None:
    lengths = WindowLengths(choice, trained, FULL)  # type: ignore[arg-type]
    assert lengths.n_states(SECOND, True) == lengths.n_states(SECOND, False) == FULL
    assert not lengths.ladder and lengths.are_full


def test_a_smaller_model_has_fewer_lengths() -> None:
    lengths = WindowLengths("interims", None, 400)
    assert lengths.ladder == LADDER[:2]
    assert lengths.n_states(6 * SECOND, True) == 400
