"""Golden exchanges: the messages between a client of a dialect and the server, without a network and a clock.

A file under `tests/compat/golden/DIALECT/` is a list of steps. The client's are `{"text": message}`, `{"binary": text}`
and `{"speech": [word, ...], "silence_s": seconds}`, which is the made-up speech of `tests/fakes.py`; between them stand
the answers, `{"answer": message}` and `{"close": [code, reason]}`. The engine of `tests/fakes.py` answers at once.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.fakes import MODEL, LevelDetector, decode, silence, speech
from tutti_server.app.errors import LimitExceeded, SessionError
from tutti_server.app.live.dialect import ClientMessage, Dialect, Preparation
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.core.effects import Cancel, Close, Effect, Send, Submit
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.session import Session
from tutti_server.engine import api

GOLDEN = Path(__file__).parent / "golden"

Step = dict[str, Any]
ToMessages = Callable[[Samples], Iterable[str | bytes]]
"""Audio, 16 kHz, as a client of the dialect sends it."""


def golden(dialect: str) -> list[Path]:
    return sorted((GOLDEN / dialect).glob("*.json"))


Decode = Callable[[api.Window], Iterable[api.EngineEvent]]
"""The engine's events for a window."""


@dataclass(frozen=True, slots=True)
class Server:
    """The server behind a dialect."""

    config: SessionConfig
    decode: Decode


PLAIN = Server(SessionConfig(make_detector=LevelDetector), decode)
"""The fake engine as it is, without speculative finals."""


def replay(
    path: Path, dialect: Dialect, to_messages: ToMessages, said: list[Step] | None = None, server: Server = PLAIN
) -> None:
    """Assert that the client's steps of a file get the answers that the file has."""
    recorded = json.loads(path.read_text())
    assert exchange(recorded, dialect, to_messages, said, server) == recorded


def record(
    path: Path, dialect: Dialect, to_messages: ToMessages, said: list[Step] | None = None, server: Server = PLAIN
) -> None:
    """Write the answers of now into a file. Read what has changed before it is kept."""
    steps = exchange(json.loads(path.read_text()), dialect, to_messages, said, server)
    lines = ",\n".join(json.dumps(step, ensure_ascii=False) for step in steps)
    path.write_text(f"[\n{lines}\n]\n")


def exchange(
    steps: Iterable[Step],
    dialect: Dialect,
    to_messages: ToMessages,
    said: list[Step] | None = None,
    server: Server = PLAIN,
) -> list[Step]:
    """The client's steps, each followed by its answers.

    Args:
        said: where the dialect itself puts what it tells others than its client, in steps of its own.
    """
    talk = _Talk(dialect, said if said is not None else [], server)
    talk.take(dialect.open())
    for step in steps:
        match step:
            case {"text": str(text)}:
                talk.hear(step, [text])
            case {"text": message}:
                talk.hear(step, [json.dumps(message)])
            case {"binary": text}:
                talk.hear(step, [text.encode()])
            case {"speech": words, "silence_s": silence_s}:
                talk.hear(step, to_messages(np.concatenate((speech(words), silence(silence_s)))))
    return talk.steps


class _Talk:
    def __init__(self, dialect: Dialect, steps: list[Step], server: Server) -> None:
        self.steps = steps
        self._dialect = dialect
        self._session = Session("s_0", MODEL, server.config)
        self._decode = server.decode
        self._windows: deque[Submit] = deque()

    def hear(self, step: Step, messages: Iterable[str | bytes]) -> None:
        self.steps.append(step)
        for message in messages:
            try:
                self.take(self._dialect.read(message))
            except LimitExceeded as error:
                self._perform(self._session.end(error))
            except SessionError as error:
                self._perform(self._session.fail(error))

    def take(self, items: Iterable[ClientMessage]) -> None:
        for item in items:
            match item:
                case events.Reply(text):
                    self._answer(text)
                case events.LateReply(make):
                    for text in make():
                        self._answer(text)
                case events.Notice():
                    self._perform([Send(item)])
                case commands.Media():
                    raise NotImplementedError("containers are decoded by the connection")
                case Preparation():
                    raise NotImplementedError("the connection prepares what it must")
                case _:
                    self._perform(self._session.receive(item))
                    if isinstance(item, commands.Audio):
                        self.take(self._dialect.audio_received(self._session.now_s))

    def _perform(self, effects: list[Effect]) -> None:
        self._carry_out(effects)
        while self._windows:
            submitted = self._windows.popleft()
            for event in self._decode(submitted.window):
                self._carry_out(self._session.engine_event(submitted.request_id, event))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(event):
                    for text in self._dialect.write(event):
                        self._answer(text)
                case Submit():
                    self._windows.append(effect)
                case Cancel(request_id):
                    self._windows = deque(each for each in self._windows if each.request_id != request_id)
                case Close():
                    close = self._dialect.close(effect)
                    self.steps.append({"close": [close.code, close.reason]})

    def _answer(self, text: str) -> None:
        self.steps.append({"answer": json.loads(text)})
