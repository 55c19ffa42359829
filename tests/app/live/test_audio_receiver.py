"""The pace of audio, and the pieces in which a session receives it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.bench import START
from tests.fakes import MODEL, FakeTranscriber, LevelDetector, pcm, silence, speech
from tests.made_files import Track, made_file, tone
from tutti_server.app.errors import CLOSE_POLICY, LimitExceeded
from tutti_server.app.live.audio_receiver import MAX_PACE, PIECE_S, REPLAY_EXTRA_S, AudioReceiver, Pace
from tutti_server.app.media.notices import Notice
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.engine_driver import SessionDriver
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.messages.events import Limits
from tutti_server.app.session.session import Session

MAX_AHEAD_S = 10.0


@dataclass
class Receiving:
    """A new session whose engine does not answer, and what receives its audio."""

    session: Session
    driver: SessionDriver
    receiver: AudioReceiver
    told: list[events.Event]
    pieces: list[float]
    """The durations of the pieces that the session got, in seconds."""
    notices: list[Notice]


@asynccontextmanager
async def receiving(*given: commands.Command, clock: Callable[[], float] = lambda: 0.0) -> AsyncIterator[Receiving]:
    """A session that has got these commands."""
    told, pieces, notices = list[events.Event](), list[float](), list[Notice]()
    config = SessionConfig(limits=Limits(max_ahead_s=MAX_AHEAD_S), make_detector=LevelDetector)
    session = Session("s_test", MODEL, config)
    async with asyncio.TaskGroup() as tasks:
        driver = SessionDriver(session, FakeTranscriber(holds=True), tasks, told.append, lambda close: None)
        receiver = AudioReceiver(session, driver, lambda s, until_s: pieces.append(s), notices.append, clock)
        for command in given:
            driver.receive(command)
        yield Receiving(session, driver, receiver, told, pieces, notices)
        receiver.close()
        driver.cancel_windows()


def test_pace_drains_with_the_clock() -> None:
    """Audio at `MAX_PACE` never gets further ahead; faster audio does."""
    pace = Pace()
    assert [pace.add(MAX_PACE, now=float(second)) for second in range(5)] == [MAX_PACE] * 5
    assert [pace.add(2 * MAX_PACE, now=float(second)) for second in range(5, 8)] == [
        2 * MAX_PACE,
        3 * MAX_PACE,
        4 * MAX_PACE,
    ]
    assert pace.add(0.0, now=100.0) == 0.0


async def test_a_large_message_is_cut_into_pieces() -> None:
    """No audio is lost, and the event loop is free between the pieces."""
    async with receiving(START) as to:
        await to.receiver.receive_pcm(pcm(silence(3.2 * PIECE_S)))
    assert to.pieces[:3] == [PIECE_S] * 3
    assert np.isclose(sum(to.pieces), 3.2 * PIECE_S)
    assert to.session.audio_s == pytest.approx(3.2 * PIECE_S)


async def test_a_container_may_jump_over_a_pause() -> None:
    """The silence of a gap comes at once, and is no more than the time that has passed."""
    now = 0.0
    content = made_file("matroska", "pcm_s16le", 16_000, [Track(samples=tone(4.0), gap=(2.0, 100.0))])
    async with receiving(START, clock=lambda: now) as to:
        await to.receiver.receive_container(content[: len(content) // 3])
        now = 102.0
        await to.receiver.receive_container(content[len(content) // 3 :])
        await to.receiver.finish()
    assert to.session.audio_s == pytest.approx(104.0, abs=0.1)
    assert to.notices == []


async def test_a_container_is_ignored_when_the_session_is_ending() -> None:
    """Final texts are still to come, whatever the container holds."""
    async with receiving(START, SPEECH) as to:
        to.driver.perform(to.session.end(LimitExceeded("too_fast", "too much", CLOSE_POLICY)))
        await to.receiver.receive_container(b"this is no audio at all " * 4000)
        await to.receiver.finish()
        assert to.session.is_stopping


async def test_raw_audio_is_looked_at_in_each_of_its_formats() -> None:
    """Once for a format, and also where it ends early."""
    floats = pcm(tone(0.5, 300.0))
    async with receiving(START) as to:
        await to.receiver.receive_pcm(floats)
        to.driver.receive(replace(commands.Configure.of(START), audio=AudioFormat("pcm_s16le")))
        await to.receiver.receive_pcm(floats)
        await to.receiver.finish()
        await to.receiver.finish()
    assert [each.message.partition("got ")[2] for each in to.notices] == ["what looks like pcm_f32le"]


async def test_a_resumed_session_may_be_further_ahead() -> None:
    """It replays at most its longest utterance and one window."""
    allowed_s = MAX_AHEAD_S + START.endpointing.max_utterance_s + REPLAY_EXTRA_S
    async with receiving(replace(START, resume=commands.Resume(from_s=(5.0,)))) as to:
        await to.receiver.receive_pcm(pcm(silence(allowed_s - 1)))
    assert to.session.audio_s == pytest.approx(allowed_s - 1)


SPEECH = commands.Audio(pcm(speech([1, 2, 3])))


@pytest.mark.parametrize(
    ("before", "code"), [([], "not_started"), ([START, SPEECH, commands.Stop()], "audio_after_stop")]
)
async def test_a_message_of_audio_that_is_not_taken_is_answered_once(before: list[commands.Command], code: str) -> None:
    """However long it is: it is not cut into pieces, is no received audio, and cannot come too fast."""
    async with receiving(*before) as to:
        await to.receiver.receive_pcm(pcm(silence(2 * MAX_AHEAD_S)))
    assert [each.code for each in to.told if isinstance(each, events.Failure)] == [code]
    assert not to.pieces
