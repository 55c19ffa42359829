"""A dialect, a session and a scripted engine without a network: messages in, messages out."""

import json
from collections.abc import Iterable
from typing import Any

from app.live.dialect import ClientMessage, Dialect
from app.session import commands, events
from app.session.effects import Cancel, Close, Effect, Send, Submit
from app.session.session import Session, SessionConfig
from engine import api
from tests.fakes import MODEL, LevelDetector, decode

CONFIG = SessionConfig(make_detector=LevelDetector)


class Talk:
    """What a connection does with a dialect. `said` is all that the server has said, as JSON objects."""

    def __init__(
        self, dialect: Dialect, model: api.ModelInfo = MODEL, config: SessionConfig = CONFIG, answers: bool = True
    ) -> None:
        """Args:
        answers: the engine answers at once; else when `answer_all` says so.
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
        """A message of the client's; what the server says to it at once."""
        n_before = len(self.said)
        self._take(self._dialect.read(json.dumps(message) if isinstance(message, dict) else message))
        if self.answers:
            self.answer_all()
        return self.said[n_before:]

    def answer_all(self) -> None:
        while self._waiting:
            job, window = self._waiting.pop(0)
            for event in decode(window):
                self.perform(self.session.engine_event(job, event))

    def perform(self, effects: Iterable[Effect]) -> None:
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
        return [message for message in self.said if message["type"] == kind]

    def _take(self, items: Iterable[ClientMessage]) -> None:
        for item in items:
            match item:
                case events.Reply(text):
                    self.said.append(json.loads(text))
                case events.Notice():
                    self.perform([Send(item)])
                case commands.Media():
                    raise AssertionError("containers are decoded by the connection")
                case _:
                    self.commands.append(item)
                    self.perform(self.session.receive(item))
