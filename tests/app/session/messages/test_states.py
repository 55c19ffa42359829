"""Which commands a session carries out, ignores or refuses in each of its states."""

from typing import get_args

import pytest

from tutti_server.app.errors import WrongState
from tutti_server.app.session.messages import commands
from tutti_server.app.session.messages.states import REACTIONS, Reaction, State, must_carry_out

COMMANDS: list[commands.Command] = [
    commands.Start(),
    commands.Audio(b""),
    commands.Flush(1),
    commands.Discard(),
    commands.Configure.of(commands.Start()),
    commands.Keepalive(),
    commands.Stop(),
]


def test_the_table_names_every_command_and_every_open_state() -> None:
    """A command or state that is added must be given its reactions."""
    assert set(REACTIONS) == set(get_args(commands.Command)) == {type(command) for command in COMMANDS}
    assert all(set(row) == set(State) - {State.CLOSED} for row in REACTIONS.values())


def test_an_ending_session_still_answers_flushes() -> None:
    """The client may not know yet that the session ends."""
    row = {command for command, reactions in REACTIONS.items() if reactions[State.ENDING] is Reaction.CARRY_OUT}
    assert row == {commands.Flush}


def test_refusals_name_the_command() -> None:
    with pytest.raises(WrongState, match="flush: expected start first") as unstarted:
        must_carry_out(commands.Flush(1), State.NEW)
    assert (unstarted.value.code, unstarted.value.is_fatal) == ("not_started", True)
    with pytest.raises(WrongState, match="audio: nothing is taken after stop") as stopped:
        must_carry_out(commands.Audio(b""), State.STOPPING)
    assert (stopped.value.code, stopped.value.is_fatal) == ("audio_after_stop", False)
