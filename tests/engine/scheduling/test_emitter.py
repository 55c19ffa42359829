"""Events on their way from the engine's thread to the callers."""

import numpy as np
import pytest

from tutti_server.engine.api import DoneEvent, SegmentEvent, StartedEvent, SupersededEvent, Window
from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.decoding.transcript import TokenTranscript, TranscriptInfo
from tutti_server.engine.errors import EngineFailed
from tutti_server.engine.scheduling.emitter import EventEmitter
from tutti_server.engine.scheduling.request import AttemptOutput, Item, Request

STARTED = StartedEvent(0.0, 1)


def request() -> Request:
    window = Window(samples=np.zeros(16_000, np.float32), session="")
    return Request(window=window, max_tokens=9, put=lambda item: None)


def output(checkpoint: Checkpoint) -> AttemptOutput:
    info = TranscriptInfo(audio_s=1.0, language="en", with_timestamps=False, no_speech_prob=0.0)
    transcript = TokenTranscript(checkpoint.tokenizer, info)
    for token in checkpoint.tokenizer.encode(" one"):
        transcript.push(token, -1.0)
    return AttemptOutput(transcript, ())


def test_all_items_of_a_step_are_delivered_together() -> None:
    """Nothing is delivered where there is nothing."""
    delivered: list[list[tuple[Request, Item]]] = []
    emitter, one, two = EventEmitter(delivered.append), request(), request()
    emitter.flush()
    emitter.put(one, STARTED)
    emitter.put(two, STARTED)
    assert delivered == []
    emitter.flush()
    emitter.flush()
    assert delivered == [[(one, STARTED), (two, STARTED)]]


@pytest.mark.parametrize("max_windows", [1, 2, 5])
def test_finished_windows_are_emitted_up_to_the_limit(small_checkpoint: Checkpoint, max_windows: int) -> None:
    """The first ones first; held events come before the last events of their window."""
    delivered: list[tuple[Request, Item]] = []
    emitter = EventEmitter(delivered.extend)
    requests = [request() for _ in range(3)]
    for each in requests:
        held = output(small_checkpoint)
        held.held_events.append(STARTED)
        emitter.finish(each, held, None)
    emitter.emit(max_windows)
    n_emitted = min(max_windows, 3)
    assert emitter.n_finished == 3 - n_emitted
    kinds = [StartedEvent, SegmentEvent, DoneEvent]
    assert [(each, type(item)) for each, item in delivered] == [
        (each, kind) for each in requests[:n_emitted] for kind in kinds
    ]
    assert emitter.forget_finished() == requests[n_emitted:] and emitter.n_finished == 0


def test_events_that_come_again_are_left_out() -> None:
    """The window was decoded from the beginning after a failure. Other events than before end it with an error."""
    delivered: list[tuple[Request, Item]] = []
    emitter, one = EventEmitter(delivered.extend), request()
    emitter.put(one, STARTED)
    one.restart()
    emitter.put(one, STARTED)
    emitter.flush()
    assert delivered == [(one, STARTED)]
    one.restart()
    emitter.put(one, SupersededEvent())
    emitter.flush()
    assert isinstance(delivered[-1][1], EngineFailed) and one.is_cancelled
