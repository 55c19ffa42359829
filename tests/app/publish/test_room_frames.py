"""The events of a room as its readers ask for them."""

from tutti_server.app.publish.room_frames import Frames


def test_readers_that_ask_for_every_place_cost_no_more_than_a_few_histories() -> None:
    """A room that has ended has no new event, with which the answers would go."""
    frames = Frames(room="abc", max_chars=1_000_000)
    for number in range(1000):
        frames.add({"type": "segment", "text": f"Text {number}."}, number, 10)
    whole = frames.after(0)
    for number in range(1000):
        assert whole.endswith(frames.after(number))
    assert sum(map(len, frames._joined.values())) < 10 * len(whole)
