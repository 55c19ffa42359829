"""The fold of a room's log: nothing doubled, nothing lost, whatever happens to the speaker's connection."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.publish.made_up import (
    Message,
    Reader,
    Server,
    entries,
    make_recording,
    resumed_from_s,
    spoken_text,
)
from tutti_server.app.publish.room import Room
from tutti_server.app.publish.room_entries import Begun, Ended, Left, Passed, Spoken, read_entry, write_entry

MAX_CHARS = 100_000


def new_room(max_chars: int = MAX_CHARS) -> Room:
    return Room("abc", "choir", max_chars)


def begun_room(max_chars: int = MAX_CHARS) -> Room:
    """A room in which the session `a` speaks."""
    room = new_room(max_chars)
    room.fold(Begun(stream="a", at=100.0))
    return room


def moved(room: Room) -> Room:
    """The room as another gateway restores it."""
    other = new_room()
    other.restore(json.loads(json.dumps(room.snapshot())))
    return other


def interim(utterance: int, start_s: float, stable: str, tail: str = "", channel: int = 0) -> Message:
    times = {"start_s": start_s, "end_s": start_s + 1}
    return {"type": "interim", "utterance": utterance, "channel": channel, **times, "stable": stable, "tail": tail}


def segment(utterance: int, start_s: float, text: str, **more: Any) -> Message:
    times = {"start_s": start_s, "end_s": start_s + 1}
    message = {"type": "segment", "utterance": utterance, "id": 7, "channel": 0, **times, "text": text}
    return message | {"words": [{"word": text}], "confidence": 0.9, "language": "en"} | more


def utterance(number: int, start_s: float, text: str, resume_from_s: float) -> Message:
    message = {"type": "utterance", "utterance": number, "channel": 0, "start_s": start_s, "end_s": start_s + 1}
    points = {"final_until_s": resume_from_s, "resume_from_s": [resume_from_s], "detector_from_s": [None]}
    return message | {"text": text, "uncovered": [[start_s, start_s + 0.5]], **points}


def speak(room: Room, stream: str, *messages: Message) -> None:
    for entry in entries(stream, list(messages), room._stream.next_number):
        room.fold(entry)


@given(st.integers(0, 2**32))
def test_readers_have_the_text_of_the_speaker_wherever_its_connections_are_cut(seed: int) -> None:
    """The server may have written more than the client received; readers come, go and change gateways at any time."""
    random = Random(seed)
    recording = make_recording(random)
    from_s = [0.0] * len(recording)
    room, readers = new_room(), [Reader()]
    n_losses = random.randint(0, 4)
    for loss in range(n_losses + 1):
        room.fold(Begun(stream=f"{loss}", at=100.0 + loss, resumed_from_s=from_s if loss else None))
        messages = Server(random, recording, from_s).messages()
        n_written = len(messages) if loss == n_losses else random.randint(0, len(messages))
        for entry in entries(f"{loss}", messages[:n_written]):
            for _ in range(random.choice([1, 1, 1, 2])):
                # An answer of the store that comes too late lets the speaker write again what is there.
                room.fold(read_entry(write_entry(entry)))
            if random.random() < 0.03:
                # Another gateway could not know that the session goes on.
                room.fold(Ended(stream=f"{loss}", at=150.0))
            if random.random() < 0.05:
                room = moved(room)
            if random.random() < 0.1:
                readers.append(Reader())
            for reader in readers:
                if random.random() < 0.5:
                    reader.catch_up(room)
        from_s = resumed_from_s(messages[: random.randint(0, n_written)], from_s)
    room.fold(Ended(stream=f"{n_losses}", at=200.0))
    for reader in (*readers, Reader()):
        reader.catch_up(room)
        assert [reader.text(channel) for channel in range(len(recording))] == spoken_text(recording)
        assert not reader.interims
        assert reader.ended.keys() == reader.segments.keys()
        assert all(text == reader.ended[number].upper() for number, text in reader.translations.items())
        assert reader.types[-1] == "ended"


def test_lines_that_come_again_stay_until_the_new_ones_are_there() -> None:
    """So readers never look at less than the speaker has said."""
    room, reader = begun_room(), Reader()
    speak(room, "a", segment(0, 1.0, "One."), utterance(0, 1.0, "One.", 2.5), interim(1, 3.0, "Two", " three"))
    reader.catch_up(room)
    room.fold(Begun(stream="b", at=110.0, resumed_from_s=[2.5]))
    assert room.frames.after(room.frames.number_of(reader.last_id)) == b""
    speak(room, "b", interim(0, 3.0, "Two", " tree"))
    reader.catch_up(room)
    assert reader.types[-2:] == ["retract", "interim"]
    assert [each["tail"] for each in reader.interims.values()] == [" tree"]


def test_a_translation_stays_that_ends_where_its_text_comes_again() -> None:
    """An utterance of two windows is translated after the first one, and not once more."""
    room, reader = begun_room(), Reader()
    translation = segment(0, 20.0, "Eins.", language="de") | {"type": "translation"}
    speak(room, "a", segment(0, 20.0, "One."), translation, interim(0, 21.0, " Two"))
    room.fold(Begun(stream="b", at=110.0, resumed_from_s=[21.0]))
    speak(room, "b", segment(0, 21.0, "Two."))
    reader.catch_up(room)
    assert (list(reader.translations.values()), reader.text(0)) == (["Eins."], "One.Two.")


@pytest.mark.parametrize("is_back", [False, True])
def test_stable_text_of_lost_audio_stays(is_back: bool) -> None:
    """Whether the speaker comes back, with a gap, or not. The name of its channel stays, too."""
    room, reader = begun_room(), Reader()
    speak(room, "a", interim(0, 1.0, "One two", " three") | {"speaker": "Ann"})
    reader.catch_up(room)
    if is_back:
        room.fold(Begun(stream="b", at=110.0, resumed_from_s=[5.0]))
        speak(room, "b", segment(0, 6.0, "Four."), utterance(0, 6.0, "Four.", 8.0))
    else:
        room.fold(Ended(stream="a", at=110.0))
    reader.catch_up(room)
    assert reader.text(0) == ("One twoFour." if is_back else "One two")
    assert reader.ended[0] == "One two"
    assert reader.segments[0][0]["speaker"] == "Ann"


@pytest.mark.parametrize("stable", [" Two", ""])
def test_a_room_that_was_ended_while_its_speaker_could_not_reach_the_store_goes_on_with_it(stable: str) -> None:
    """What was stable at the end is not doubled, and an utterance that has ended for readers gets no more text."""
    room, reader = begun_room(), Reader()
    speak(room, "a", segment(0, 1.0, "One."), interim(0, 2.0, stable, " tree"))
    room.fold(Ended(stream="a", at=500.0))
    reader.catch_up(room)
    assert (room.is_live, reader.text(0)) == (False, f"One.{stable}")
    room.fold(Passed(stream="a", at=510.0))
    assert (room.is_live, room.left_at) == (True, None)
    speak(room, "a", segment(0, 2.0, " Two three."), utterance(0, 1.0, "One. Two three.", 3.0))
    reader.catch_up(moved(room))
    assert (reader.text(0), reader.types.count("ended")) == ("One. Two three.", 1)


def test_a_session_that_was_replaced_changes_nothing() -> None:
    room = begun_room()
    room.fold(Begun(stream="b", at=101.0, resumed_from_s=[0.0]))
    before = room.frames.newest
    speak(room, "a", segment(0, 1.0, "One."))
    room.fold(Left(stream="a", at=102.0))
    room.fold(Ended(stream="a", at=103.0))
    assert (room.frames.newest, room.is_live, room.left_at) == (before, True, None)


def test_a_new_session_goes_on_after_the_text_of_the_old_one() -> None:
    """Its times begin at zero; those of the room go on."""
    room, reader = begun_room(), Reader()
    speak(room, "a", segment(0, 1.0, "One."), interim(1, 3.0, "Two"))
    room.fold(Ended(stream="a", at=150.0))
    room.fold(Begun(stream="b", at=160.0))
    redactions = [{"kind": "card", "start_s": 1.25, "end_s": 1.5}]
    speak(room, "b", segment(0, 1.0, "Three.", redactions=redactions), utterance(0, 1.0, "Three.", 2.5))
    reader.catch_up(room)
    assert reader.text(0) == "One.TwoThree."
    assert reader.segments[2][0]["redactions"] == [{"kind": "card", "start_s": 61.25, "end_s": 61.5}]
    assert [(line.start_s, line.text) for line in room.lines.current(None)] == [(1, "One."), (3, "Two"), (61, "Three.")]
    assert reader.types[-3:] == ["utterance", "segment", "utterance"]
    (ended,) = [json.loads(data.decode()[:-2].split("data: ")[1]) for data in [room.frames.finals[-1].data]]
    assert ended["uncovered"] == [[61, 61.5]]


def test_who_comes_to_a_room_whose_speaker_has_returned_reads_of_no_end() -> None:
    """Readers stop reading with `ended`."""
    room = begun_room()
    speak(room, "a", segment(0, 1.0, "One."))
    room.fold(Ended(stream="a", at=150.0))
    room.fold(Begun(stream="b", at=160.0))
    speak(room, "b", segment(0, 1.0, "Two."))
    late = Reader()
    late.catch_up(moved(room))
    assert late.text(0) == "One.Two."
    assert "ended" not in late.types


def test_players_get_the_text_of_a_speaker_who_comes_back_for_a_moment() -> None:
    """The last segment before the end reaches beyond it, and does not change any more."""
    room = new_room()
    for stream, at in (("a", 100.0), ("b", 103.0)):
        room.fold(Begun(stream=stream, at=at))
        speak(room, stream, segment(0, 0.5, f"From {stream}."), utterance(0, 0.5, f"From {stream}.", 1.5))
        room.fold(Ended(stream=stream, at=at + 2.0))
    played = [[line.text for line in room.lines.of_segment(each, None)] for each in range(room.lines.n_segments)]
    assert played == [["From a."], ["From b."]]


def test_text_that_was_lost_on_its_way_is_reported() -> None:
    room, reader = begun_room(), Reader()
    room.fold(Spoken(stream="a", number=2, message=segment(0, 1.0, "Three.")))
    reader.catch_up(room)
    assert reader.types == ["warning", "segment"]


def test_the_oldest_text_goes_first() -> None:
    """A late reader gets what is kept; what has gone is in no subtitles, either."""
    room = begun_room(max_chars=2000)
    for number in range(100):
        speak(room, "a", segment(number, 2.0 * number, f"Text {number}."))
        speak(room, "a", utterance(number, 2.0 * number, f"Text {number}.", 2.0 * number + 1.5))
    late = Reader()
    assert len(room.frames.finals) < 40
    assert len(list(room.lines.current(None))) < 40
    late.catch_up(moved(room))
    assert late.types[-1] == "utterance"


def test_a_translation_that_is_asked_for_again_finds_its_utterance_and_is_shown_once() -> None:
    """A client that resumes names an utterance by its own number."""
    room, reader = begun_room(), Reader()
    for number in range(2):
        speak(room, "a", segment(number, 2.0 * number, f"Text {number}."))
        speak(room, "a", utterance(number, 2.0 * number, f"Text {number}.", 2.0 * number + 1.5))
    room.fold(Begun(stream="b", at=110.0, resumed_from_s=[3.5]))
    translation = segment(7, 2.0, "Zwei.", language="de") | {"type": "translation"}
    for earlier in (translation | {"earlier": True, "translated_until_s": [3.0]}, translation | {"earlier": True}):
        speak(room, "b", earlier)
    speak(room, "b", translation | {"earlier": True, "start_s": 50.0})
    reader.catch_up(moved(room))
    assert reader.translations == {1: "Zwei."}
    assert reader.types.count("translation") == 1
    assert b"translated_until_s" not in room.frames.after(0)


def test_segments_for_players_wait_for_open_speech_but_not_for_ever() -> None:
    room = begun_room()
    made = []
    for at in (108.0, 114.0):
        room.fold(Passed(stream="a", at=at))
        made.append(room.lines.n_segments)
    speak(room, "a", interim(0, 13.0, "One"))
    for at in (120.0, 126.0, 133.0, 139.0):
        room.fold(Passed(stream="a", at=at))
        made.append(room.lines.n_segments)
    assert made == [1, 2, 2, 2, 3, 4]
    assert moved(room).lines.n_segments == 4
