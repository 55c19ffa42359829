"""Which stretches of a channel's audio the speaker network receives: windows on a grid, and short runs of speech.

The grid is one of the session's timeline, so that a resumed session cuts the same windows as the lost one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import numpy as np

from tutti_server.app.media.pcm import Samples

HOP_FRAMES = 37
"""The distance of the windows, in frames of 20 ms (0.74 s). A window is twice as long."""
MIN_VOICED_FRAMES = HOP_FRAMES
"""A window with fewer frames of speech is not embedded: half of it must be speech."""
MIN_RUN_FRAMES = 20
"""A run of speech with fewer frames (0.4 s) is not embedded on its own: no network knows a voice by so little."""
RUN_GAP_FRAMES = 15
"""The frames without speech that end a run (0.3 s)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stretch:
    """Audio of one channel that a speaker is asked for."""

    id: int
    """Counts up over the stretches of a session."""
    start: int
    """Position of the first sample of the speech that the answer is about."""
    end: int
    """Position after the last one."""
    frames: tuple[Samples, ...]
    """The audio of the stretch, which stretches that overlap share."""
    is_run: bool = False
    """Whether it is a whole run of speech between two silences, of which its speaker is surer than windows are."""
    is_short: bool = False
    """Whether it has so little speech that it shows no new speaker, and only which known one is the nearest."""

    @property
    def samples(self) -> Samples:
        """Return the audio in one piece: mono float32 at 16 kHz."""
        return np.concatenate(self.frames)


@dataclass(frozen=True, slots=True)
class SpeakersFound:
    """What is known of the speakers after more stretches."""

    speakers: dict[int, int]
    """The speakers of stretches, by their ids: of new ones, and of earlier ones that belong to another one after all.

    Speakers are numbered from 0 in the order of their first speech.
    """
    voices: str
    """What a later session needs to know the same speakers again."""


class VoiceMemory(Protocol):
    """Tells the speakers of one session apart."""

    async def add(self, stretches: tuple[Stretch, ...]) -> SpeakersFound | None:
        """Find the speakers of more stretches, in the order of their ids; `None` if that fails or takes too long.

        Only one call runs at a time.
        """
        ...


class SpeakerTeller(Protocol):
    """Tells speakers apart for all sessions of a process."""

    def open(self, max_speakers: int, voices: str) -> VoiceMemory | None:
        """The memory of a session. `None` if this server has no speaker network.

        Args:
            voices: `SpeakersFound.voices` of the session that it goes on with; empty for a new one.

        Raises:
            ValueError: `voices` is nothing that this server has sent.
        """
        ...


@dataclass(slots=True)
class _Piece:
    """The audio between two lines of the grid, as far as it was received."""

    start: int = 0
    """Position of its first frame."""
    frames: list[Samples] = field(default_factory=list)
    n_voiced: int = 0


class SpeechStretches:
    """Cuts the speech of one channel into stretches, frame by frame."""

    def __init__(self, origin: int) -> None:
        """`origin` is the time of the session's first sample, in samples: where the grid begins."""
        self._origin = origin
        self._previous, self._piece = _Piece(), _Piece()
        self._was_window = False
        """Whether the window that ended with the piece before was embedded."""
        self._run: list[Samples] = []
        """The frames of the run of speech, and the silence after it; no more than a window has."""
        self._run_start = 0
        self._run_voiced = 0
        self._is_long = False
        """Whether the run is longer than a window, so that windows hold it."""
        self._n_silent = 0
        self._ids = count()

    def push(self, position: int, frame: Samples, is_voiced: bool) -> Iterator[Stretch]:
        """Process the next frame, which begins at this position. Yields the stretches that end with it."""
        frame = frame.copy()
        if self._grid_line(position, len(frame)):
            yield from self._window()
            self._previous, self._piece = self._piece, _Piece(position)
        elif not self._piece.frames:
            self._piece.start = position
        self._piece.frames.append(frame)
        self._piece.n_voiced += is_voiced
        if not is_voiced and not self._run:
            return
        if not self._run:
            self._run_start = position
        self._run_voiced += is_voiced
        self._n_silent = 0 if is_voiced else self._n_silent + 1
        self._is_long |= len(self._run) >= 2 * HOP_FRAMES + RUN_GAP_FRAMES
        if not self._is_long:
            self._run.append(frame)
        if self._n_silent >= RUN_GAP_FRAMES:
            yield from self.end_run()

    def end_run(self) -> Iterator[Stretch]:
        """The run of speech has ended. Yields it if it is so short that no window need be about it alone."""
        frames = self._run[: len(self._run) - self._n_silent]
        if not self._is_long and self._run_voiced >= MIN_RUN_FRAMES:
            end = self._run_start + sum(map(len, frames))
            is_short = self._run_voiced < MIN_VOICED_FRAMES
            yield self._stretch(self._run_start, end, frames, is_run=True, is_short=is_short)
        self._run, self._run_voiced, self._n_silent, self._is_long = [], 0, 0, False

    def _grid_line(self, position: int, n_samples: int) -> bool:
        # Whole numbers, as `round` gives 36 and 38 for 36.5 and 37.5, and a session may begin between two frames.
        return (self._origin + position + n_samples // 2) // n_samples % HOP_FRAMES == 0

    def _window(self) -> Iterator[Stretch]:
        first, second = self._previous, self._piece
        is_window = first.n_voiced + second.n_voiced >= MIN_VOICED_FRAMES
        if is_window:
            # It is about its middle. Its edges belong to its neighbours, if it has any.
            n_first, n_second = sum(map(len, first.frames)), sum(map(len, second.frames))
            start = second.start - (n_first // 2 if self._was_window else n_first)
            yield self._stretch(start, second.start + n_second, [*first.frames, *second.frames])
        self._was_window = is_window

    def _stretch(self, start: int, end: int, frames: list[Samples], **kind: bool) -> Stretch:
        return Stretch(id=next(self._ids), start=start, end=end, frames=tuple(frames), **kind)
