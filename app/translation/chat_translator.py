"""Translates final text by a chat endpoint: in order, with the text before as context, and each within a time limit."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal

from tutti_server.app.errors import TranslationFailed
from tutti_server.app.session.core.effects import Translate
from tutti_server.app.translation.chat_endpoint import ChatEndpoint
from tutti_server.app.translation.prompt import Context, messages, new_context, read_answer

logger = logging.getLogger(__name__)

Outcome = Literal["translated", "failed"]


class ChatTranslator:
    """Translates for all sessions of this process. See `tutti_server.app.session.core.effects.Translator`."""

    def __init__(
        self,
        endpoint: ChatEndpoint,
        languages: tuple[str, ...],
        timeout_s: float,
        on_outcome: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        """Prepare a translator; `running` starts it.

        Args:
            endpoint: makes the translations.
            languages: the codes of the languages that it knows, by what the operator says.
            timeout_s: the time limit of one translation from its text on, in seconds: waiting, retries and all.
            on_outcome: called once for each text.
        """
        self.languages = languages
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._on_outcome = on_outcome

    def running(self) -> AbstractAsyncContextManager[None]:
        """Translate while the context is open."""
        return self._endpoint.running()

    def open(self) -> "ChatSession":
        """Begin a session."""
        return ChatSession(self._translate)

    async def _translate(self, request: Translate, line: "_Line") -> str:
        try:
            async with asyncio.timeout(self._timeout_s), line.turn:
                answer = await self._endpoint.ask(
                    messages(request.text, request.source, request.language, line.context)
                )
            translation = read_answer(answer, request.text)
        except (TimeoutError, TranslationFailed) as error:
            self._on_outcome("failed")
            message = str(error) or f"no translation within {self._timeout_s:g} s"
            logger.warning("a translation to %s failed: %s", request.language, message)
            raise TranslationFailed(message) from error
        line.context.append((request.text, translation))
        self._on_outcome("translated")
        return translation


@dataclass(slots=True)
class _Line:
    """The texts of one channel to one language: one is translated at a time, in the order in which they came."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    context: Context = field(default_factory=new_context)


class ChatSession:
    """The translations of one session. See `tutti_server.app.session.core.effects.SessionTranslator`."""

    def __init__(self, translate: Callable[[Translate, _Line], Awaitable[str]]) -> None:
        self._translate = translate
        self._lines: dict[tuple[int, str], _Line] = {}
        """The lines by channel and language; the options of the session bound their number."""

    async def translate(self, request: Translate) -> str:
        """Return the translation of a text. Raises `TranslationFailed` where there is none in time."""
        line = self._lines.setdefault((request.channel, request.language), _Line())
        return await self._translate(request, line)
