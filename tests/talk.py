"""A dialect, a session and a fake engine without a network: messages go in, messages come out."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from tests.fakes import MODEL, LevelDetector, decode
from tutti_server.app.live.dialect import ClientMessage, Dialect, Preparation
from tutti_server.app.session.core.effects import Cancel, Close, Effect, Send, Submit
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.session import Session
from tutti_server.engine import api

CONFIG = SessionConfig(make_detector=LevelDetector)
Decode = Callable[[api.Window], Iterable[api.EngineEvent]]
"""The engine's events for a window."""


class Talk:
    """Does what a connection does with a dialect. `said` holds all messages of the server, as JSON objects."""

    def __init__(
        self,
        dialect: Dialect,
        model: api.ModelInfo = MODEL,
        config: SessionConfig = CONFIG,
        decode: Decode = decode,
        answers: bool = True,
    ) -> None:
        """Open a connection.

        Args:
            dialect: its wire format.
            model: what the engine has loaded.
            config: the operator's settings.
            decode: what the engine does.
            answers: whether the engine answers at once; otherwise it answers when the test calls `answer_all`.
        """
        self.said: list[dict[str, Any]] = []
        self.closes: list[Close] = []
        self.windows: list[api.Window] = []
        self.commands: list[commands.Command] = []
        self.answers = answers
        self._waiting: list[Submit] = []
        self._dialect = dialect
        self._decode = decode
        self.session = Session("s_0", model, config)
        self._take(dialect.open())

    def say(self, message: dict[str, Any] | str | bytes) -> list[dict[str, Any]]:
        """Send a message of the client; returns the server's messages that follow at once."""
        n_before = len(self.said)
        self._take(self._dialect.read(json.dumps(message) if isinstance(message, dict) else message))
        return self.said[n_before:]

    def answer_all(self) -> None:
        """Let the engine answer all windows, also those that follow from its answers."""
        while self._waiting:
            submitted = self._waiting.pop(0)
            for event in self._decode(submitted.window):
                self._carry_out(self.session.engine_event(submitted.request_id, event))

    def perform(self, effects: Iterable[Effect]) -> None:
        """Perform effects as the shell does."""
        self._carry_out(effects)
        if self.answers:
            self.answer_all()

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The server's messages of this type, in order."""
        return [message for message in self.said if message["type"] == kind]

    def note_message(self, text: str) -> None:
        """The server has sent a message."""
        self.said.append(json.loads(text))

    def note_close(self, close: Close) -> None:
        """The server has closed the connection."""
        self.closes.append(close)

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(event):
                    self._send(self._dialect.write(event))
                case Submit():
                    self.windows.append(effect.window)
                    self._waiting.append(effect)
                case Cancel(request_id):
                    self._waiting = [each for each in self._waiting if each.request_id != request_id]
                case Close():
                    self.note_close(self._dialect.close(effect))

    def _send(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.note_message(text)

    def _take(self, items: Iterable[ClientMessage]) -> None:
        for item in items:
            match item:
                case events.Reply(text):
                    self.note_message(text)
                case events.LateReply(make):
                    self._send(make())
                case events.Notice():
                    self.perform([Send(item)])
                case commands.Media():
                    raise NotImplementedError("containers are decoded by the connection")
                case Preparation():
                    raise NotImplementedError("the connection prepares what it must")
                case _:
                    self.commands.append(item)
                    self.perform(self.session.receive(item))
                    if isinstance(item, commands.Audio):
                        self._take(self._dialect.audio_received(self.session.now_s))
