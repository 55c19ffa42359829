"""The pace of audio, and the pieces in which a session receives it."""

import asyncio

import numpy as np
import pytest

from tests.bench import START
from tests.fakes import MODEL, FakeTranscriber, LevelDetector, pcm, silence, speech
from tests.made_files import Track, made_file, tone
from tutti_server.app.live.audio_receiver import MAX_PACE, PIECE_S, REPLAY_EXTRA_S, AudioReceiver, Pace
from tutti_server.app.media.notices import Notice, drop
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.engine_driver import SessionDriver
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.messages.events import Limits
from tutti_server.app.session.session import Session

MAX_AHEAD_S = 10.0


async def fill(start: commands.Start, seconds: float) -> tuple[Session, list[float]]:
    """Give a new session audio at one moment. Returns the session, and the durations of the pieces."""
    config = SessionConfig(limits=Limits(max_ahead_s=MAX_AHEAD_S), make_detector=LevelDetector)
    session = Session("s_test", MODEL, config)
    pieces: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        driver = SessionDriver(session, FakeTranscriber(), tasks, lambda event: None, lambda close: None)
        driver.receive(start)
        receiver = AudioReceiver(
            session, driver, lambda duration_s, until_s: pieces.append(duration_s), drop, lambda: 0.0
        )
        await receiver.receive_pcm(pcm(silence(seconds)))
    return session, pieces


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
    session, pieces = await fill(commands.Start(audio=AudioFormat("pcm_f32le")), 3.2 * PIECE_S)
    assert pieces[:3] == [PIECE_S] * 3
    assert np.isclose(sum(pieces), 3.2 * PIECE_S)
    assert session.audio_s == pytest.approx(3.2 * PIECE_S)


async def test_a_container_may_jump_over_a_pause() -> None:
    """The silence of a gap comes at once, and is no more than the time that has passed."""
    now = 0.0
    notices: list[Notice] = []
    config = SessionConfig(limits=Limits(max_ahead_s=MAX_AHEAD_S), make_detector=LevelDetector)
    session = Session("s_test", MODEL, config)
    content = made_file("matroska", "pcm_s16le", 16_000, [Track(samples=tone(4.0), gap=(2.0, 100.0))])
    async with asyncio.TaskGroup() as tasks:
        driver = SessionDriver(session, FakeTranscriber(), tasks, lambda event: None, lambda close: None)
        driver.receive(commands.Start(audio=AudioFormat("pcm_f32le")))
        receiver = AudioReceiver(session, driver, lambda duration_s, until_s: None, notices.append, lambda: now)
        await receiver.receive_container(content[: len(content) // 3])
        now = 102.0
        await receiver.receive_container(content[len(content) // 3 :])
        await receiver.finish()
        assert session.audio_s == pytest.approx(104.0, abs=0.1)
        receiver.close()
        driver.cancel_windows()
    assert notices == []


async def test_raw_audio_is_looked_at_in_each_of_its_formats() -> None:
    """Once for a format, and also where it ends early."""
    notices: list[Notice] = []
    session = Session("s_test", MODEL, SessionConfig(make_detector=LevelDetector))
    floats = pcm(tone(0.5, 300.0))
    async with asyncio.TaskGroup() as tasks:
        driver = SessionDriver(session, FakeTranscriber(), tasks, lambda event: None, lambda close: None)
        receiver = AudioReceiver(session, driver, lambda duration_s, until_s: None, notices.append, lambda: 0.0)
        start = commands.Start(audio=AudioFormat("pcm_f32le"))
        driver.receive(start)
        await receiver.receive_pcm(floats)
        change = commands.Configure(
            audio=AudioFormat("pcm_s16le"),
            endpointing=start.endpointing,
            language=None,
            prompt="",
            hotwords=(),
            words=False,
        )
        driver.receive(change)
        await receiver.receive_pcm(floats)
        await receiver.finish()
        await receiver.finish()
        driver.cancel_windows()
    assert [each.message.partition("got ")[2] for each in notices] == ["what looks like pcm_f32le"]


async def test_a_resumed_session_may_be_further_ahead() -> None:
    """It replays at most its longest utterance and one window."""
    start = commands.Start(audio=AudioFormat("pcm_f32le"), resume=commands.Resume(from_s=(5.0,)))
    allowed_s = MAX_AHEAD_S + start.endpointing.max_utterance_s + REPLAY_EXTRA_S
    session, _ = await fill(start, allowed_s - 1)
    assert session.audio_s == pytest.approx(allowed_s - 1)


@pytest.mark.parametrize(("before", "code"), [([], "not_started"), ([START, commands.Stop()], "audio_after_stop")])
async def test_a_message_of_audio_that_is_not_taken_is_answered_once(before: list[commands.Command], code: str) -> None:
    """However long it is: it is not cut into pieces, is no received audio, and cannot come too fast."""
    told: list[events.Event] = []
    pieces: list[float] = []
    session = Session("s_test", MODEL, SessionConfig(make_detector=LevelDetector))
    async with asyncio.TaskGroup() as tasks:
        driver = SessionDriver(session, FakeTranscriber(holds=True), tasks, told.append, lambda close: None)
        receiver = AudioReceiver(
            session, driver, lambda duration_s, until_s: pieces.append(duration_s), drop, lambda: 0.0
        )
        for command in before:
            if isinstance(command, commands.Stop):
                await receiver.receive_pcm(pcm(speech([1, 2, 3])))
                pieces.clear()
            driver.receive(command)
        await receiver.receive_pcm(pcm(silence(2 * session.limits.max_ahead_s)))
        driver.cancel_windows()
    assert [each.code for each in told if isinstance(each, events.Failure)] == [code]
    assert not pieces
