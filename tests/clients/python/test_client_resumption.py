"""Sessions that survive their connections: what the next connection is sent, and what the program receives."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

import tutti
from benchmarks.live.faulty_proxy import faulty_proxy
from tests.app.conftest import running
from tests.clients.python.client_fakes import (
    SEGMENT,
    SPEECH,
    STOPPED,
    UTTERANCE,
    Peer,
    answer_start,
    each,
    make_started,
    open_briefly,
    play,
    read_golden,
    refuse_with,
    serve_script,
    wait_for_other_tasks,
)
from tests.fakes import FakeTranscriber, silence, speech
from tutti import resumption
from tutti.continuity import Continuity
from tutti.messages import AudioFormat, Flush, Resume, Start, Stop, parse_event
from tutti.outgoing import Outgoing
from tutti.resumption import Lead, Reconnector, resume_command
from tutti_server.app.service.settings import Settings

FORMAT = AudioFormat("pcm_s16le", 1000, 1)
"""One sample each millisecond, so that a second is 2,000 bytes."""


@pytest.fixture(autouse=True)
def brief_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait before an attempt is longer than a moment."""
    monkeypatch.setattr(resumption, "FIRST_WAIT_S", 0.001)


@pytest.mark.parametrize(
    ("status", "may_succeed"),
    [(400, False), (401, False), (403, False), (404, False), (429, True), (500, True), (503, True)],
)
async def test_a_server_that_is_full_or_broken_is_asked_again(status: int, may_succeed: bool) -> None:
    assert resumption.is_resumable(tutti.Refused("ws://a", status, {}, "")) is may_succeed


def but_first(refuse: Callable[..., Response]) -> Callable[..., Response | None]:
    """Refuse every connection but the first."""
    is_first = iter([True])
    return lambda *args: None if next(is_first, False) else refuse(*args)


async def cut(peer: Peer) -> None:
    """Begin a session, and cut its connection."""
    await peer.begin()
    peer.socket.transport.abort()


async def cut_after_audio(peer: Peer) -> None:
    """Begin a session, and cut its connection once audio has come."""
    await peer.begin()
    await peer.receive()
    peer.socket.transport.abort()


finish = play()
"""A session that ends when the client ends it."""


async def cut_after_utterance(peer: Peer) -> None:
    """An utterance ends at 1.6 s, the next one begins, and the connection is cut."""
    await peer.begin()
    await peer.receive()
    await peer.send(SPEECH, SEGMENT, UTTERANCE)
    await peer.send(SPEECH | {"utterance": 1, "at_s": 2.0})
    peer.socket.transport.abort()


async def finish_second(peer: Peer) -> None:
    """The utterance that was cut off, and the end."""
    await peer.begin()
    await peer.receive_until("stop")
    utterance = {"start_s": 2.0, "end_s": 2.5, "text": "Bye.", "final_until_s": 3.0, "resume_from_s": [3.0]}
    await peer.send(
        SPEECH | {"at_s": 2.0}, SEGMENT | {"start_s": 2.0, "end_s": 2.5, "text": "Bye."}, UTTERANCE | utterance, STOPPED
    )


async def test_a_lost_session_goes_on_by_itself() -> None:
    """The next connection is sent what was not final; the program receives one stream of events."""
    audio = np.arange(48000, dtype="<i2").tobytes()
    async with (
        serve_script(each(cut_after_utterance, finish_second)) as server,
        tutti.connect(server.url, language="en", prompt="names") as session,
    ):
        await session.send(audio[:70000])
        events: list[tutti.Event] = []
        async for event in session:
            events.append(event)
            if isinstance(event, tutti.Resumed):
                await session.send(audio[70000:])
                await session.stop()
        assert session.final_until_s == 3.0
    assert [event.type for event in events] == [
        *("speech_started", "segment", "utterance", "speech_started"),
        *("reconnecting", "resumed", "segment", "utterance", "stopped"),
    ]
    reconnecting, resumed = events[4:6]
    assert isinstance(reconnecting, tutti.Reconnecting) and resumed == tutti.Resumed(None)
    assert reconnecting.attempt == 1 and "1006" in reconnecting.reason
    segment, utterance, stopped = events[6:]
    assert isinstance(segment, tutti.Segment) and (segment.utterance, segment.id) == (1, 1)
    assert isinstance(utterance, tutti.Utterance) and utterance.utterance == 1
    assert isinstance(stopped, tutti.Stopped) and stopped.words == 3
    first, second = server.peers
    # No text: the model is shown the text of the same utterance only. The client's own prompt is sent again.
    resume = {"from_s": [1.6], "prompt": "", "audio_from_s": 0.0, "detector_from_s": [0.0]}
    assert second.messages[0] == first.messages[0] | {"resume": resume}
    assert b"".join(second.audio) == audio


async def test_a_session_that_began_before_its_text_goes_on_at_the_same_times() -> None:
    """With the audio that its program sent before `from_s` for the server's speech detector."""
    async with (
        serve_script(each(cut_after_audio, finish)) as server,
        tutti.connect(server.url, resume=tutti.Resume(from_s=10.0, audio_from_s=5.0)) as session,
    ):
        await session.send(bytes(96000))
        await session.stop()
        stopped = [event async for event in session][-1]
    assert [peer.messages[0]["resume"] for peer in server.peers] == [
        {"from_s": 10.0, "prompt": "", "audio_from_s": 5.0},
        {"from_s": [10.0], "prompt": "", "audio_from_s": 5.0},
    ]
    assert isinstance(stopped, tutti.Stopped) and stopped.audio_s == STOPPED["audio_s"]


async def test_a_server_without_lead_in_gets_none() -> None:
    """It would take the first sample for one of `from_s`. The warning about the unknown field tells."""
    warning = {"code": "unknown_key", "message": "resume.audio_from_s: unknown key; ignored"}
    warn = answer_start(make_started() | {"warnings": [warning]})
    async with (
        serve_script(each(cut_after_utterance, warn, finish)) as server,
        tutti.connect(server.url) as session,
    ):
        await session.send(bytes(96000))
        await session.stop()
        events = [event.type async for event in session]
    assert events.count("reconnecting") == 2 and events.count("resumed") == 1
    assert server.peer.messages[0]["resume"] == {"from_s": [1.6], "prompt": ""}
    assert len(b"".join(server.peer.audio)) == 96000 - 51200


async def test_audio_is_kept_while_there_is_no_connection() -> None:
    """Sending does not wait, also if no task receives events, and nothing is lost."""
    may_connect = asyncio.Event()

    async def hold(socket: ServerConnection, request: Request) -> None:
        if len(server.peers) == 1:
            await may_connect.wait()

    async with (
        serve_script(each(cut_after_audio, finish), process_request=hold) as server,
        tutti.connect(server.url) as session,
    ):
        await session.send(bytes([0]) * 3200)
        await server.peer.socket.wait_closed()
        for number in range(1, 200):
            await session.send(bytes([number]) * 3200)
        await session.keepalive()
        await session.stop()
        may_connect.set()
        events = [event.type async for event in session]
    assert events == ["reconnecting", "resumed", "stopped"]
    assert b"".join(server.peer.audio) == b"".join(bytes([number]) * 3200 for number in range(200))


async def test_an_outage_longer_than_the_buffer_leaves_a_gap() -> None:
    """The oldest audio is dropped; the utterance that was open ends with what was shown. The next loss has no gap."""
    is_cut = asyncio.Event()

    async def cut(peer: Peer) -> None:
        await peer.begin()
        await peer.send(SPEECH, SEGMENT)
        await peer.receive()
        peer.socket.transport.abort()
        is_cut.set()

    async def refuse(socket: ServerConnection, request: Request) -> Response | None:
        if not is_cut.is_set():
            return None
        # The attempt that was under way when the last audio was sent is refused too.
        if has_sent.is_set():
            n_refused.append(1)
        return refuse_with(HTTPStatus.BAD_GATEWAY)(socket, request) if len(n_refused) < 2 else None

    has_sent = asyncio.Event()
    n_refused: list[int] = []
    async with (
        serve_script(each(cut, cut_after_audio, finish), process_request=refuse) as server,
        tutti.connect(server.url, encoding="mulaw", sample_rate=8000, resume_buffer_s=60) as session,
    ):
        await session.send(bytes(8000))
        events: list[tutti.Event] = []
        async for event in session:
            events.append(event)
            if isinstance(event, tutti.Reconnecting) and event.attempt == 2:
                for _ in range(99):
                    await session.send(bytes(8000))
                has_sent.set()
                await session.stop()
    resumed = [event for event in events if isinstance(event, tutti.Resumed)]
    assert resumed == [tutti.Resumed((0.0, 40.0)), tutti.Resumed(None)]
    assert server.peer.messages[0]["resume"]["from_s"] == [40.0]
    assert len(b"".join(server.peer.audio)) == 60 * 8000
    (utterance,) = (event for event in events if isinstance(event, tutti.Utterance))
    assert (utterance.text, utterance.uncovered) == ("Hello there.", ((1.5, 40.0),))


async def test_the_flushes_of_an_outage_are_sent_as_answers_come() -> None:
    """A server refuses more than 64 that wait. The last ones, and the end, come after the first answers."""

    async def answer(peer: Peer) -> None:
        await peer.begin()
        for _ in range(64):
            await peer.receive_until("flush")
        await peer.send(*({"type": "flushed", "id": number} for number in range(64)))
        for number in range(64, 70):
            await peer.receive_until("flush")
            await peer.send({"type": "flushed", "id": number})
        await peer.finish()

    async with serve_script(each(cut, answer)) as server, tutti.connect(server.url) as session:
        for number in range(70):
            await session.send(bytes(320))
            await session.flush(number)
        await session.stop()
        flushed = [event.id async for event in session if isinstance(event, tutti.Flushed)]
    assert flushed == list(range(70))


@pytest.mark.parametrize(
    ("code", "close_code", "is_resumed"),
    [
        ("draining", 1012, True),
        ("engine_stalled", 1011, True),
        ("no_engine", 1013, True),
        ("overloaded", 1013, True),
        ("session_limit", 1013, True),
        ("too_fast", 1008, False),
    ],
)
async def test_a_fatal_error_of_the_server_is_resumed_if_another_try_can_help(
    code: str, close_code: int, is_resumed: bool
) -> None:
    end = play({"type": "error", "code": code, "message": "over", "fatal": True}, close=close_code)
    async with serve_script(each(end, finish)) as server, tutti.connect(server.url) as session:
        event: tutti.Event | None
        try:
            event = await anext(session)
        except tutti.SessionError as error:
            assert (error.code, is_resumed) == (code, False)
            return
        assert isinstance(event, tutti.Reconnecting) and "over" in event.reason and is_resumed
        await session.stop()
        assert [event.type async for event in session] == ["resumed", "stopped"]


def be_idle(idle_timeout_s: float, lost: asyncio.Event, until: str | None = None) -> Callable[[Peer], Any]:
    """A connection that its server ends because it got nothing, after a message of this type if there is one."""

    async def script(peer: Peer) -> None:
        await peer.begin(idle_timeout_s=idle_timeout_s)
        if until is None:
            await peer.receive()
        else:
            await peer.receive_until(until)
        await peer.send({"type": "error", "code": "idle", "message": "over", "fatal": True})
        await peer.socket.wait_closed()
        lost.set()

    return script


with_something_to_send = pytest.mark.parametrize(
    ("act", "kinds"),
    [
        (lambda session: session.send(bytes(2)), ["start", "stop"]),
        (lambda session: session.flush("a"), ["start", "flush", "stop"]),
        (lambda session: session.stop(), ["start", "stop"]),
    ],
)
"""Ways to give a session something to send, and the types of the messages that its next connection is sent then."""


@with_something_to_send
async def test_a_silent_session_is_resumed_when_there_is_something_to_send(
    act: Callable[[tutti.Session], Any], kinds: list[str]
) -> None:
    """It would be ended again and again otherwise. The audio of before is sent again."""
    lost = asyncio.Event()
    async with (
        serve_script(each(be_idle(0.0, lost), finish)) as server,
        tutti.connect(server.url) as session,
    ):
        await session.send(bytes(4))
        reading = asyncio.ensure_future(anext(session))
        await lost.wait()
        await session.keepalive()
        assert not (await asyncio.wait({reading}, timeout=0.05))[0], "it must not connect before"
        await act(session)
        event = await reading
        assert isinstance(event, tutti.Reconnecting) and event.attempt == 1 and "over" in event.reason
        await session.stop()
        assert [event.type async for event in session] == ["resumed", "stopped"]
    assert [message["type"] for message in server.peer.messages] == kinds
    assert b"".join(server.peer.audio)[:4] == bytes(4)


@with_something_to_send
async def test_what_is_sent_in_the_moment_of_the_loss_resumes_a_silent_session(
    act: Callable[[tutti.Session], Any], kinds: list[str]
) -> None:
    """Before any other task has run."""
    end = play({"type": "error", "code": "idle", "message": "over", "fatal": True}, close=1008, idle_timeout_s=0.0)
    async with (
        asyncio.timeout(5),
        serve_script(each(end, finish)) as server,
        tutti.connect(server.url) as session,
    ):
        await server.peer.socket.wait_closed()
        # It notices the loss.
        await session.keepalive()
        await act(session)
        types = [(await anext(session)).type, (await anext(session)).type]
        await session.stop()
        assert [*types, *[event.type async for event in session]] == ["reconnecting", "resumed", "stopped"]
    assert [message["type"] for message in server.peer.messages] == kinds


@pytest.mark.parametrize(
    ("act", "kind", "idle_timeout_s"),
    [
        (lambda session: session.send(bytes(2)), None, 60.0),
        (lambda session: session.flush("a"), "flush", 0.0),
        (lambda session: session.stop(), "stop", 0.0),
    ],
)
async def test_what_a_network_has_lost_is_sent_again_at_once(
    act: Callable[[tutti.Session], Any], kind: str | None, idle_timeout_s: float
) -> None:
    """A server that got nothing, from a client that has sent something, ends a session which its client needs."""
    async with (
        serve_script(each(be_idle(idle_timeout_s, asyncio.Event(), kind), finish)) as server,
        tutti.connect(server.url) as session,
    ):
        await act(session)
        types = [(await anext(session)).type, (await anext(session)).type]
        await session.stop()
        assert [*types, *[event.type async for event in session]] == ["reconnecting", "resumed", "stopped"]


@pytest.mark.parametrize("close_code", [1000, 1002, 1008, 1009])
async def test_a_close_that_would_come_again_is_an_error(close_code: int) -> None:
    async with serve_script(play(close=close_code)) as server, tutti.connect(server.url) as session:
        with pytest.raises(tutti.ConnectionLost) as caught:
            await anext(session)
    assert caught.value.close_code == close_code


async def test_a_refusal_that_would_come_again_is_an_error() -> None:
    """It is raised by the iteration and by `send`."""
    refuse = but_first(refuse_with(HTTPStatus.FORBIDDEN))
    async with serve_script(cut, process_request=refuse) as server, tutti.connect(server.url) as session:
        with pytest.raises(tutti.Refused) as caught:
            _ = [event async for event in session]
        assert caught.value.status == HTTPStatus.FORBIDDEN
        with pytest.raises(tutti.Refused):
            await session.send(bytes(2))
    await wait_for_other_tasks()


async def test_leaving_during_an_outage_ends_everything() -> None:
    unavailable = refuse_with(HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "60"})
    async with (
        serve_script(cut, process_request=but_first(unavailable)) as server,
        tutti.connect(server.url) as session,
    ):
        async for event in session:
            if isinstance(event, tutti.Reconnecting) and event.attempt == 2:
                assert 60 <= event.retry_in_s < 61 and "503" in event.reason
                break
    await wait_for_other_tasks()


def test_only_a_useful_buffer_is_accepted() -> None:
    with pytest.raises(tutti.BadOption, match="resume_buffer_s: expected 60 or more, or 0"):
        asyncio.run(open_briefly("ws://127.0.0.1:1", resume_buffer_s=10))


async def never(start: Start) -> Any:
    raise AssertionError


async def test_a_session_goes_on_in_its_room() -> None:
    """The server has made its name, and its token proves to another one whose it is."""
    starts: list[Start] = []

    async def refuse(start: Start) -> Any:
        starts.append(start)
        raise tutti.Unreachable("ws://a", "no")

    started = parse_event(
        next(case["wire"] for case in read_golden("server.json") if case["name"] == "started in a room")
    )
    assert isinstance(started, tutti.Started) and started.room
    reconnector = Reconnector(refuse, Start(room=tutti.Room(title="Sunday")), 300)
    reconnector.keep_room(started)
    with pytest.raises(tutti.Unreachable):
        await reconnector.open(Resume(1.0))
    assert starts[0].room == tutti.Room(name=started.room.name, token=started.room.token, title="Sunday")


async def test_waits_grow_and_are_drawn_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a limit, above what the server asks for; a connection that worked begins anew."""
    monkeypatch.setattr(resumption, "FIRST_WAIT_S", 0.5)
    reconnector = Reconnector(never, Start(), 300, lambda low, high: high)
    reconnector.lose()
    error = tutti.Unreachable("ws://a", "no")

    def attempt(error: tutti.TuttiError) -> tuple[int, float] | None:
        planned = reconnector.next_attempt(error)
        return None if planned is None else (planned.attempt, planned.retry_in_s)

    assert [attempt(error) for _ in range(9)] == [*enumerate([0.5, 1, 2, 4, 8, 16, 30, 30, 30], 1)]
    assert attempt(tutti.Overloaded("ws://a", 503, {}, "", 7.0)) == (10, 37)
    # It was lost at once again: the same outage.
    reconnector.lose()
    assert attempt(error) == (11, 30)
    reconnector.settle()
    reconnector.lose()
    assert attempt(error) == (1, 0.5)
    assert attempt(tutti.Overloaded("ws://a", 503, {}, "", 400.0)) is None


async def test_waits_stay_at_their_limit_for_as_long_as_the_server_is_away() -> None:
    """Also after the 1,025th attempt, before which a factor that doubles becomes too large for a float."""
    reconnector = Reconnector(never, Start(), 86_400, lambda low, high: high)
    reconnector.lose()
    error = tutti.Unreachable("ws://a", "no")
    attempts = [reconnector.next_attempt(error) for _ in range(1100)]
    assert attempts[-1] is not None and attempts[-1].retry_in_s == resumption.MAX_WAIT_S


@pytest.mark.parametrize("outage_s", [10.0, 150.0, 1000.0])
def test_a_replay_stays_within_what_the_server_allows(outage_s: float) -> None:
    """Counted as the server counts (app/live/audio_receiver.py), and at nearly the pace that it allows."""
    from tutti_server.app.live.audio_receiver import Pace

    lead, pace, now_s, sent_s, longest_s = Lead(150.0), Pace(), 100.0, 0.0, 0.0
    while sent_s < outage_s + (now_s - 100.0):
        now_s += lead.wait_s(0.5, now_s)
        longest_s = max(longest_s, pace.add(0.5, now_s))
        sent_s += 0.5
    assert longest_s <= 150.0
    # Audio of `outage_s` and of the time that the replay takes, at 1.5 times real time after the allowance.
    assert now_s - 100.0 <= max(0.0, (outage_s - 120.0) / 0.5) + 2.0


def test_everything_that_is_not_final_is_sent_again() -> None:
    """In order: some audio before it, audio, flushes at their places, and the end."""
    outgoing = Outgoing(FORMAT, 10.0, 60.0)
    outgoing.append(b"a" * 22000)
    outgoing.flush(Flush("x"))
    outgoing.append(b"b" * 2000)
    assert pop_all(outgoing) == ["a" * 22000, "x", "b" * 2000]
    outgoing.forget_before(20.5)
    outgoing.stop()
    assert pop_all(outgoing) == ["stop"]
    assert outgoing.rewind() == (10.5, None)
    assert pop_all(outgoing) == ["a" * 21000, "x", "b" * 2000, "stop"]
    outgoing.answer("x")
    outgoing.answer("unknown")
    outgoing.forget_before(21.0)
    assert outgoing.rewind() == (11.0, None)
    assert pop_all(outgoing) == ["a" * 20000 + "b" * 2000, "stop"]
    assert outgoing.rewind(has_lead_in=False) == (21.0, None)
    assert pop_all(outgoing) == ["b" * 2000, "stop"]


def test_what_the_detector_needs_is_sent_again() -> None:
    """The server says how much audio its detector needs before the text that is not final; 10 s if it does not."""
    audio = bytes(60_000)
    for detector_from_s, from_s in (((), 5.0), ((13.0,), 13.0), ((2.0,), 2.0), ((13.0, None), 5.0), ((3.0, 13.0), 3.0)):
        outgoing = Outgoing(FORMAT, 0.0, 60.0)
        outgoing.append(audio)
        pop_all(outgoing)
        outgoing.forget_before(15.0, detector_from_s)
        assert outgoing.rewind() == (from_s, None)
        assert outgoing.rewind(has_lead_in=False) == (15.0, None)


def test_the_detector_begins_where_the_lost_session_says_if_the_audio_is_kept() -> None:
    continuity = Continuity((0.0,))
    event = UTTERANCE | {"resume_from_s": [12.0, 13.0], "detector_from_s": [5.0, None]}
    continuity.receive(parse_event(SPEECH))
    continuity.receive(parse_event(event))
    assert resume_command(continuity, 3.0, True) == tutti.Resume((12.0, 13.0), "", 3.0, (5.0, None))
    assert resume_command(continuity, 5.0000001, True).detector_from_s == (5.0, None)
    assert resume_command(continuity, 6.0, True) == tutti.Resume((12.0, 13.0), "", 6.0)
    assert resume_command(continuity, 12.0, False) == tutti.Resume((12.0, 13.0))
    continuity.resume(12.5, 12.5)
    assert resume_command(continuity, 12.5, True) == tutti.Resume((12.5, 13.0))


def test_a_session_is_resumed_in_the_languages_of_before() -> None:
    """That of the last utterance of each channel whose language was detected, also after audio was lost."""
    continuity = Continuity((0.0,))
    events = [
        UTTERANCE | {"utterance": 0, "resume_from_s": [12.0, 13.0], "channel": 1, "language": "de"},
        UTTERANCE | {"utterance": 1, "resume_from_s": [14.0, 15.0], "channel": 1, "language": "en"},
        UTTERANCE | {"utterance": 2, "resume_from_s": [16.0, 17.0], "channel": 1},
    ]
    assert resume_command(continuity, 0.0, True).language is None
    for event in events:
        continuity.receive(parse_event(event))
    assert resume_command(continuity, 12.0, True).language == (None, "en")
    continuity.resume(20.0, lost_until_s=20.0)
    assert resume_command(continuity, 20.0, True).language == (None, "en")


def test_at_most_64_flushes_wait_for_their_answers() -> None:
    """A server refuses more of them. The others are sent, with the audio after them, as answers come."""
    outgoing = Outgoing(FORMAT, 0.0, 60.0)
    for number in range(66):
        outgoing.append(b"ab")
        outgoing.flush(Flush(number))
    outgoing.stop()
    outgoing.rewind()
    assert len(pop_all(outgoing)) == 2 * 64 + 1
    assert pop_all(outgoing) == []
    outgoing.answer(0)
    assert pop_all(outgoing) == ["64", "ab"]
    outgoing.answer(1)
    assert pop_all(outgoing) == ["65", "stop"]


def test_a_time_means_a_whole_frame_whatever_its_rounding() -> None:
    """The audio of the next connection begins with the first byte of a sample of every channel."""
    outgoing = Outgoing(AudioFormat("pcm_s16le", 44100, 2), 0.0, 60.0)
    outgoing.append(bytes(44100 * 4 * 3))
    pop_all(outgoing)
    outgoing.forget_before(1.001)
    from_s, lost_until_s = outgoing.rewind(has_lead_in=False)
    assert lost_until_s is None
    assert from_s == int(1.001 * 44100) / 44100
    assert sum(len(item) for item in pop_all(outgoing)) == 4 * (3 * 44100 - int(1.001 * 44100))


def test_without_a_connection_the_oldest_audio_is_dropped() -> None:
    """With one, only what it was sent already."""
    outgoing = Outgoing(FORMAT, 0.0, 60.0)
    outgoing.append(bytes(100 * 2000 + 1))
    outgoing.limit(is_connected=True)
    assert outgoing.is_full
    assert sum(len(item) for item in pop_all(outgoing)) == 200_001
    outgoing.limit(is_connected=True)
    assert not outgoing.is_full
    assert outgoing.rewind() == (40.0, 40.0)
    # It was promised to the connection that is being opened.
    outgoing.append(bytes(20000))
    outgoing.limit(is_connected=False)
    assert outgoing.rewind() == (40.0, 40.0)
    outgoing.end_replay()
    outgoing.limit(is_connected=False)
    assert outgoing.rewind() == (50.0, 50.0)


def test_everything_is_kept_if_the_buffer_has_no_limit() -> None:
    outgoing = Outgoing(FORMAT, 0.0, math.inf)
    outgoing.append(b"abc" * 100_000)
    outgoing.limit(is_connected=False)
    assert outgoing.rewind() == (0.0, None)
    assert not outgoing.is_full


def test_nothing_is_kept_if_nothing_is_resumed() -> None:
    outgoing = Outgoing(FORMAT, 0.0, 0.0)
    outgoing.append(b"abc")
    assert outgoing.is_full
    assert pop_all(outgoing) == ["abc"]
    assert not outgoing.is_full


def pop_all(outgoing: Outgoing) -> list[str]:
    items: list[str] = []
    while (item := outgoing.pop(1_000_000)) is not None:
        match item:
            case bytes():
                items.append(item.decode("latin-1"))
            case Stop():
                items.append("stop")
            case _:
                items.append(str(item.id))
    return items


async def test_the_transcript_is_that_of_an_undisturbed_run() -> None:
    """With a whole server, and a cable that is pulled again and again: in speech, after an interim, after a final."""
    samples = np.concatenate(
        [part for first in range(0, 36, 6) for part in (speech([*range(first, first + 6)]), silence(1.0))]
    )
    audio = (samples * 32767).astype("<i2").tobytes()

    async def source() -> AsyncIterator[bytes]:
        for begin in range(0, len(audio), 3200):
            yield audio[begin : begin + 3200]

    async def transcribe(url: str, drop: Callable[[], None] | None) -> tuple[list[str], int]:
        transcript, n_dropped = tutti.Transcript(), 0
        async with tutti.connect(url) as session:
            async for event in session.stream(source()):
                transcript.add(event)
                cause = (tutti.SpeechStarted, tutti.Interim, tutti.Utterance)[n_dropped % 3]
                if drop is not None and n_dropped < 6 and isinstance(event, cause):
                    n_dropped += 1
                    drop()
        return [utterance.text for utterance in transcript.utterances()], n_dropped

    async with running(Settings(port=0, model="fake"), FakeTranscriber()) as server:
        undisturbed, _ = await transcribe(server.http, None)
        async with faulty_proxy(server.http) as proxy:
            disturbed, n_dropped = await transcribe(proxy.url, proxy.drop_connections)
    assert len(undisturbed) == 6 and n_dropped >= 3
    assert disturbed == undisturbed


async def test_a_half_open_connection_does_not_block_the_microphone() -> None:
    """The server reads nothing more: audio is kept, and sending goes on."""
    is_done = asyncio.Event()

    async def ignore(peer: Peer) -> None:
        await peer.receive_until("start")
        await peer.send(make_started())
        peer.socket.transport.pause_reading()
        await is_done.wait()
        peer.socket.transport.abort()

    # More than the buffers of the sockets hold: 20 s of eight channels.
    chunk = bytes(48000 * 4 * 8)
    async with (
        serve_script(each(ignore, finish)) as server,
        tutti.connect(server.url, encoding="pcm_f32le", sample_rate=48000, channels=8) as session,
    ):
        for _ in range(20):
            await session.send(chunk)
        is_done.set()
        await session.stop()
        _ = [event async for event in session]
    assert len(b"".join(server.peer.audio)) == 20 * len(chunk)
