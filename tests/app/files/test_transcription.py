"""Whole recordings: order and context of their windows, progress, memory, and failures."""

import asyncio
import gc
import sys
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

import numpy as np
import pytest

from tests.fakes import MODEL, FakeTranscriber, LevelDetector, said, silence, speech
from tutti_server.app.errors import MediaError, SessionError
from tutti_server.app.files.transcript import Transcript
from tutti_server.app.files.transcription import session_config, transcribe
from tutti_server.app.files.transcription_options import DEFAULT_OPTIONS, FILE_TEMPERATURES, TranscriptionOptions
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.core.final_beams import RECORDING_BEAMS
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.engine_driver import MAX_BACKLOG
from tutti_server.app.session.messages import events
from tutti_server.app.session.speech.endpointing import DetectAhead, SpeechDetector
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE, ModelInfo, Priority
from tutti_server.engine.errors import EngineFailed

PIECE_SAMPLES = 10 * SAMPLE_RATE
PROMPT = "Names: Kowalski."


@dataclass
class BusyTranscriber(FakeTranscriber):
    """Lets other tasks run while it decodes. Counts the windows that are open, and those that are still in memory."""

    most_open: int = 0
    n_kept: int = 0
    most_kept: int = 0
    shown: list[str] = field(default_factory=list)
    """The text before each window."""

    def __post_init__(self) -> None:
        self.windows = deque(maxlen=1)  # type: ignore[assignment]  # like a list of the newest window

    async def _events(self, window: api.Window) -> AsyncIterator[api.EngineEvent]:
        self.most_open = max(self.most_open, self.n_open)
        self.n_kept += 1
        self.most_kept = max(self.most_kept, self.n_kept)
        weakref.finalize(window.samples, self._window_freed)
        self.shown.append(window.options.previous_text)
        for _ in range(20):
            await asyncio.sleep(0)
        async for event in super()._events(window):
            yield event

    def _window_freed(self) -> None:
        self.n_kept -= 1


class EdgeDetector(LevelDetector):
    """A fast one: it looks at the first and the last sample of a frame only."""

    def is_speech(self, frame: Samples) -> bool:
        return bool(frame[0] or frame[-1])


class NotingDetector(LevelDetector):
    """Notes how many samples it gets at a time."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def prepare(self, frames: Samples) -> None:
        self.lengths.append(len(frames))


def ignore(_: events.Event) -> None:
    pass


async def pieces(samples: Samples) -> AsyncIterator[Samples]:
    for at in range(0, len(samples), PIECE_SAMPLES):
        yield samples[at : at + PIECE_SAMPLES]


async def repeated(piece: Samples, minutes: float) -> AsyncIterator[Samples]:
    """A recording of this length, made piece by piece."""
    for _ in range(round(minutes * 60 * SAMPLE_RATE / len(piece))):
        yield piece.copy()


async def run(
    transcriber: FakeTranscriber,
    audio: AsyncIterator[Samples],
    on_event: Callable[[events.Event], None] = ignore,
    *,
    detector: Callable[[], SpeechDetector] = LevelDetector,
    options: TranscriptionOptions = DEFAULT_OPTIONS,
    on_progress: Callable[[float], None] | None = None,
    detect_ahead: DetectAhead | None = None,
) -> None:
    config = SessionConfig(make_detector=detector, detect_ahead=detect_ahead)
    await transcribe(
        transcriber,
        audio,
        on_event,
        session_id="file_test",
        config=config,
        options=options,
        on_progress=on_progress,
    )


def conversation(n_turns: int, pause_s: float = 1.0) -> tuple[list[int], Samples]:
    """Turns of about 20 s with pauses between them. Returns all words, and the samples."""
    turns = [[(turn * 10 + index * 7) % 80 for index in range(70)] for turn in range(n_turns)]
    parts = [part for turn in turns for part in (speech(turn), silence(pause_s))]
    return [number for turn in turns for number in turn], np.concatenate(parts)


async def test_windows_without_context_are_decoded_side_by_side() -> None:
    """The model sees only the client's prompt before each window."""
    transcriber, transcript = BusyTranscriber(), Transcript()
    words, samples = conversation(6)
    await run(transcriber, pieces(samples), transcript.add, options=TranscriptionOptions(prompt=PROMPT))
    assert transcript.text == said(words)
    assert 3 <= transcriber.most_open <= MAX_BACKLOG
    assert set(transcriber.shown) == {PROMPT}
    assert transcriber.windows[0].priority is Priority.FILE, "finals of live sessions go first"


async def test_windows_with_context_are_decoded_one_after_another() -> None:
    """The model sees the text of the windows before."""
    transcriber, transcript = BusyTranscriber(), Transcript()
    words, samples = conversation(6)
    await run(
        transcriber, pieces(samples), transcript.add, options=TranscriptionOptions(prompt=PROMPT, carries_context=True)
    )
    assert transcript.text == said(words)
    assert transcriber.most_open == 1
    assert transcriber.shown[0] == PROMPT
    assert len(transcriber.shown) >= 6
    before = list(accumulate((segment.text.strip() for segment in transcript.segments), "{} {}".format))
    for shown, said_before in zip(transcriber.shown[1:], before, strict=False):
        assert shown.strip().endswith(said_before[-200:])
        assert said_before.endswith(shown.strip())


@pytest.mark.parametrize("carries_context", [False, True])
async def test_progress_rises_to_the_end(carries_context: bool) -> None:
    """No segment begins before the reported progress, and the last report is the end of the recording."""
    reached: list[float] = []
    transcript = Transcript()

    def check(event: events.Event) -> None:
        transcript.add(event)
        if isinstance(event, events.Segment) and reached:
            assert event.start_s >= reached[-1]

    _, samples = conversation(6)
    samples = samples[: -SAMPLE_RATE // 3]
    options = TranscriptionOptions(carries_context=carries_context)
    await run(BusyTranscriber(), pieces(samples), check, options=options, on_progress=reached.append)
    assert all(earlier < later for earlier, later in pairwise(reached))
    assert len(reached) >= 6
    assert reached[-1] == transcript.audio_s


async def test_progress_is_never_ahead_of_the_text() -> None:
    """Audio that waits for its text is not final."""
    transcriber = FakeTranscriber(holds=True)
    reached: list[float] = []
    _, samples = conversation(6)
    samples = np.concatenate((silence(25.0), samples))
    task = asyncio.create_task(run(transcriber, pieces(samples), on_progress=reached.append))
    for _ in range(100):
        await asyncio.sleep(0)
    assert transcriber.n_open >= 3
    assert 19.0 < reached[-1] <= 25.0
    transcriber.release()
    await task
    assert reached[-1] == pytest.approx(len(samples) / SAMPLE_RATE, abs=0.02)


async def test_a_recording_without_a_sample_is_empty() -> None:
    transcript = Transcript()
    reached: list[float] = []
    await run(FakeTranscriber(), pieces(silence(0.0)), transcript.add, on_progress=reached.append)
    assert (transcript.text, transcript.audio_s, reached) == ("", 0.0, [])


async def test_a_recording_that_is_cut_off_has_text_to_its_end() -> None:
    """The part of a word at the end has text, too."""
    transcript = Transcript()
    samples = speech([1, 2, 3])
    await run(FakeTranscriber(), pieces(samples[: -SAMPLE_RATE // 5]), transcript.add)
    assert transcript.text == "w1 w2 p3"
    assert transcript.uncovered == []


@pytest.mark.parametrize("holds", [False, True])
async def test_an_error_of_the_audio_ends_the_transcription(holds: bool) -> None:
    """The error is raised unchanged, and all windows end."""
    transcriber = FakeTranscriber(holds=holds)

    async def broken() -> AsyncIterator[Samples]:
        yield conversation(2)[1]
        await transcriber.opened.wait()
        raise MediaError("file: broken")

    with pytest.raises(MediaError, match="file: broken"):
        await run(transcriber, broken())
    assert transcriber.n_open == 0


async def test_a_failing_engine_raises_its_error() -> None:
    with pytest.raises(SessionError) as raised:
        await run(FakeTranscriber(error=EngineFailed("gone")), pieces(conversation(2)[1]))
    assert raised.value.code == EngineFailed("gone").code


async def test_cancelling_ends_all_windows() -> None:
    transcriber = FakeTranscriber(holds=True)
    task = asyncio.create_task(run(transcriber, pieces(conversation(6)[1])))
    await transcriber.opened.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert transcriber.n_open == 0


TURN = np.concatenate((speech(range(20)), silence(10.0 - 20 * 0.28)))
"""Ten seconds: a turn of speech, then silence."""


@pytest.mark.default
async def test_a_long_recording_needs_as_many_objects_as_ten_minutes() -> None:
    """The number of windows, tasks and other objects does not grow, nor the audio that is kept."""
    transcriber = BusyTranscriber()
    n_tasks: list[int] = []
    n_objects: list[int] = []
    n_windows = 0

    async def audio() -> AsyncIterator[Samples]:
        nonlocal n_windows
        for _ in range(9):
            async for piece in repeated(TURN, minutes=10):
                yield piece
            n_windows += len(transcriber.shown)
            transcriber.shown.clear()
            gc.collect()
            n_objects.append(sys.getallocatedblocks())
            n_tasks.append(len(asyncio.all_tasks()))

    await run(
        transcriber,
        audio(),
        detector=EdgeDetector,
        options=TranscriptionOptions(carries_context=True),
    )
    assert n_windows >= 500
    assert transcriber.most_kept <= MAX_BACKLOG + 2
    assert max(n_tasks) <= MAX_BACKLOG + 2
    # Python itself makes objects, fewer each time: about 150 in the second ten minutes, and 0 to 30 from the sixth on.
    # One object for each window would be more than 50 each time.
    assert min(after - before for before, after in pairwise(n_objects)) < 50


@pytest.mark.parametrize(
    ("options", "temperatures"),
    [
        (TranscriptionOptions(), FILE_TEMPERATURES),
        (TranscriptionOptions(falls_back=False), (0.0,)),
        (TranscriptionOptions(temperature=0.3), (0.3,)),
    ],
)
def test_only_greedy_decoding_falls_back_to_higher_temperatures(
    options: TranscriptionOptions, temperatures: tuple[float, ...]
) -> None:
    assert options.sampling.temperatures == temperatures


@pytest.mark.parametrize(
    ("model", "chosen", "temperature", "beam_size"),
    [
        (MODEL, None, 0.0, RECORDING_BEAMS),
        (MODEL, 2, 0.0, 2),
        (MODEL, None, 0.4, 1),
        (replace(MODEL, n_slots=3), None, 0.0, 3),
    ],
)
def test_beams_of_recordings_follow_the_operator_or_the_model(
    model: ModelInfo, chosen: int | None, temperature: float, beam_size: int
) -> None:
    options = TranscriptionOptions(temperature=temperature)
    config = session_config(SessionConfig(beam_size=chosen), options, model)
    assert config.beam_size == beam_size


@pytest.mark.parametrize(("is_shared", "most_s"), [(False, 10), (True, 1)])
async def test_a_session_gets_short_pieces_where_live_ones_wait_for_them(is_shared: bool, most_s: int) -> None:
    detector = NotingDetector()

    async def detect_ahead(upcoming: object) -> None:
        pass

    ahead = detect_ahead if is_shared else None
    await run(FakeTranscriber(), repeated(silence(25), 25 / 60), detector=lambda: detector, detect_ahead=ahead)
    assert max(detector.lengths) == most_s * SAMPLE_RATE and sum(detector.lengths) == 25 * SAMPLE_RATE
