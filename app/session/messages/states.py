"""The states of a session, and what it does with a command in each of them, as a table.

The idea of the table is that of python-hyper/h11, h11/_state.py.
"""

from enum import Enum, auto

from tutti_server.app.errors import CLOSE_POLICY, WrongState
from tutti_server.app.session.messages.commands import Audio, Command, Configure, Discard, Flush, Keepalive, Start, Stop


class State(Enum):
    """How far a session has come."""

    NEW = auto()
    """The session waits for `Start`."""
    OPEN = auto()
    """The session receives audio."""
    STOPPING = auto()
    """The client has sent `Stop`; final texts are still to come."""
    ENDING = auto()
    """The server ends the session; final texts of the audio so far are still to come, new audio is ignored."""
    CLOSED = auto()
    """The session is over."""


class Reaction(Enum):
    """What a session does with a command."""

    CARRY_OUT = auto()
    IGNORE = auto()
    REFUSE_UNSTARTED = auto()
    """The command needs a started session: the session fails."""
    REFUSE_STARTED = auto()
    """The session has started already, and goes on."""
    REFUSE_STOPPED = auto()
    """The client has stopped the session already, which goes on to its end."""


_DO, _IGNORE = Reaction.CARRY_OUT, Reaction.IGNORE
_UNSTARTED, _STARTED, _STOPPED = Reaction.REFUSE_UNSTARTED, Reaction.REFUSE_STARTED, Reaction.REFUSE_STOPPED

# fmt: off
REACTIONS: dict[type[Command], dict[State, Reaction]] = {
    #            NEW                     OPEN                   STOPPING                   ENDING
    Start:     {State.NEW: _DO,        State.OPEN: _STARTED, State.STOPPING: _STARTED, State.ENDING: _STARTED},
    Audio:     {State.NEW: _UNSTARTED, State.OPEN: _DO,      State.STOPPING: _STOPPED, State.ENDING: _IGNORE},
    Flush:     {State.NEW: _UNSTARTED, State.OPEN: _DO,      State.STOPPING: _STOPPED, State.ENDING: _DO},
    Discard:   {State.NEW: _UNSTARTED, State.OPEN: _DO,      State.STOPPING: _STOPPED, State.ENDING: _IGNORE},
    Configure: {State.NEW: _UNSTARTED, State.OPEN: _DO,      State.STOPPING: _STOPPED, State.ENDING: _IGNORE},
    Stop:      {State.NEW: _UNSTARTED, State.OPEN: _DO,      State.STOPPING: _STOPPED, State.ENDING: _IGNORE},
    Keepalive: {State.NEW: _IGNORE,    State.OPEN: _IGNORE,  State.STOPPING: _IGNORE,  State.ENDING: _IGNORE},
}
"""What a session does with each command in each state; a closed session ignores all of them."""
# fmt: on


def must_carry_out(command: Command, state: State) -> bool:
    """Whether a session in this state carries out a command; false if it ignores it.

    Raises:
        WrongState: the client must not send this command now.
    """
    reaction = REACTIONS[type(command)].get(state, Reaction.IGNORE)
    if reaction is Reaction.CARRY_OUT:
        return True
    name = type(command).__name__.lower()
    if reaction is Reaction.REFUSE_UNSTARTED:
        raise WrongState("not_started", f"{name}: expected start first", CLOSE_POLICY)
    if reaction is Reaction.REFUSE_STARTED:
        raise already_started()
    if reaction is Reaction.REFUSE_STOPPED:
        raise WrongState("audio_after_stop", f"{name}: nothing is taken after stop")
    return False


def already_started() -> WrongState:
    """The error of a second `Start`."""
    return WrongState("already_started", "start: the session has started already")
