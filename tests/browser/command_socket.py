"""The socket of a browser that answers numbered commands and sends events: DevTools of Chromium, BiDi of Firefox."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tests.browser.page import COMMAND_TIMEOUT_S, PageError

Message = dict[str, Any]


class CommandSocket:
    """Sends commands, and gives each its answer, which has the same id. `read` must run meanwhile."""

    def __init__(self, socket: ClientConnection, on_event: Callable[[Message], None]) -> None:
        self._socket = socket
        self._on_event = on_event
        self._next_id = 0
        self._answers: dict[int, asyncio.Future[Message]] = {}

    async def read(self) -> None:
        """Read messages until the browser closes the socket."""
        try:
            async for text in self._socket:
                message = json.loads(text)
                if message.get("id") is None:
                    self._on_event(message)
                    continue
                answer = self._answers.pop(message["id"])
                # The browser answers also a command whose caller does not wait any more.
                if not answer.done():
                    answer.set_result(message)
        except ConnectionClosed:
            # A test that has failed closes the socket; pytest shows the error of the test.
            pass
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(PageError("the browser has closed the connection"))

    async def command(
        self, method: str, params: Message, timeout_s: float = COMMAND_TIMEOUT_S, **envelope: str
    ) -> Message:
        """Send a command and wait for its result.

        Args:
            method: the name of the command.
            params: its parameters.
            timeout_s: how long it may take, in seconds.
            envelope: fields beside those of every command.

        Raises:
            PageError: the browser refused the command, or closed the connection.
            TimeoutError: there was no answer in time.
        """
        self._next_id += 1
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[self._next_id] = answer
        await self._socket.send(json.dumps({"id": self._next_id, "method": method, "params": params, **envelope}))
        async with asyncio.timeout(timeout_s):
            reply = await answer
        if "error" in reply:
            # DevTools has the sentence inside the error, BiDi beside it.
            error = reply["error"]
            raise PageError(f"{method}: {error['message'] if isinstance(error, dict) else reply['message']}")
        result: Message = reply["result"]
        return result
