"""A dialect, a session and a fake engine without a network: messages go in, messages come out."""

import json
from collections.abc import Iterable
from typing import Any

from tests.fakes import MODEL, LevelDetector, decode
from tutti_server.app.live.dialect import ClientMessage, Dialect, Preparation
from tutti_server.app.session.core.effects import Cancel, Close, Effect, Send, Submit
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.session import Session
from tutti_server.engine import api

CONFIG = SessionConfig(make_detector=LevelDetector)


class Talk:
    """Does what a connection does with a dialect. `said` holds all messages of the server, as JSON objects."""

    def __init__(
        self, dialect: Dialect, model: api.ModelInfo = MODEL, config: SessionConfig = CONFIG, answers: bool = True
    ) -> None:
        """Open a connection.

        Args:
            dialect: its wire format.
            model: what the engine has loaded.
            config: the operator's settings.
            answers: whether the engine answers at once; otherwise it answers when the test calls `answer_all`.
        """
        self.said: list[dict[str, Any]] = []
        self.closes: list[Close] = []
        self.windows: list[api.Window] = []
        self.commands: list[commands.Command] = []
        self.answers = answers
        self._waiting: list[tuple[int, api.Window]] = []
        self._dialect = dialect
        self.session = Session("s_test", model, config)
        self._take(dialect.open())

    def say(self, message: dict[str, Any] | str | bytes) -> list[dict[str, Any]]:
        """Send a message of the client; returns the server's messages that follow at once."""
        n_before = len(self.said)
        self._take(self._dialect.read(json.dumps(message) if isinstance(message, dict) else message))
        if self.answers:
            self.answer_all()
        return self.said[n_before:]

    def answer_all(self) -> None:
        """Let the engine answer all windows, also those that follow from its answers."""
        while self._waiting:
            job, window = self._waiting.pop(0)
            for event in decode(window):
                self.perform(self.session.engine_event(job, event))

    def perform(self, effects: Iterable[Effect]) -> None:
        """Perform effects as the shell does, but queue the windows."""
        for effect in effects:
            match effect:
                case Send(event):
                    self.said += map(json.loads, self._dialect.write(event))
                case Submit(job, window):
                    self.windows.append(window)
                    self._waiting.append((job, window))
                case Cancel(job):
                    self._waiting = [each for each in self._waiting if each[0] != job]
                case Close():
                    self.closes.append(self._dialect.close(effect))

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The server's messages of this type, in order."""
        return [message for message in self.said if message["type"] == kind]

    def _take(self, items: Iterable[ClientMessage]) -> None:
        for item in items:
            match item:
                case events.Reply(text):
                    self.said.append(json.loads(text))
                case events.LateReply(make):
                    self.said += map(json.loads, make())
                case events.Notice():
                    self.perform([Send(item)])
                case commands.Media():
                    raise AssertionError("containers are decoded by the connection")
                case Preparation():
                    raise AssertionError("the connection prepares what it must")
                case _:
                    self.commands.append(item)
                    self.perform(self.session.receive(item))
