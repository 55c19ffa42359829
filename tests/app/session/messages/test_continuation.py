"""Where a session begins that continues a lost one."""

from tutti_server.app.session.messages.commands import Resume
from tutti_server.app.session.messages.continuation import ChannelStart, Continuation, find_start


def test_times_become_positions_since_the_first_sample() -> None:
    """A channel without a known beginning gives all audio to its detector, which is not what it had before."""
    found = find_start(Resume((12.5, 13.0), "", 10.0, (11.0, None)), 2)
    assert found == Continuation(10.0, (ChannelStart(40_000, 16_000), ChannelStart(48_000, None)))


def test_times_that_are_not_exact_in_binary_mean_the_same_sample() -> None:
    """A client adds up the time of its first sample, which may come out a little after the one it was sent."""
    first_s = 0.1 + 0.2
    assert find_start(Resume((1.0,), "", first_s, (0.3,)), 1).channels == (ChannelStart(11_200, 0),)
