"""Wyoming: one JSON line for each event over TCP, with more JSON and with audio behind it. A connection has one text.

Source: wyoming 1.10.2 on PyPI, `wyoming/event.py`, `asr.py`, `audio.py` and `info.py`.
"""

import asyncio
import ipaddress
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from tutti_server.app.dialects.checks import are_texts, integer_from, usable_hotwords
from tutti_server.app.dialects.json_text import read_object, write_object
from tutti_server.app.errors import CLOSE_POLICY, BadStart, SessionError
from tutti_server.app.languages import joined, language_of
from tutti_server.app.live.accept import serve_session
from tutti_server.app.live.dialect import ClientMessage, QuietDialect
from tutti_server.app.live.tcp_port import TcpClient, TcpPort
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.service.models import Models
from tutti_server.app.service.settings import Settings
from tutti_server.app.session.messages import commands, events
from tutti_server.app.version import VERSION
from tutti_server.engine.api import ModelCard
from tutti_server.plugins.wyoming.plugin import WyomingSettings

MAX_EVENT_BYTES = 1 << 16
"""The longest line of an event, and the longest JSON behind it."""
FORMAT = ("rate", "width", "channels")


class WyomingDialect(QuietDialect):
    """One connection, from its first event that is neither `describe` nor `ping`."""

    idle_timeout_s = None
    max_text_chars = 2 * MAX_EVENT_BYTES

    def __init__(self, models: Models) -> None:
        self._models = models
        self._wanted: dict[str, Any] = {}
        """What `transcribe` asked for."""
        self._texts: list[str] = []
        self._language: str | None = None

    def read(self, message: str | bytes) -> Iterable[ClientMessage]:
        """Translate an event. Events without a meaning here are left out, as Wyoming asks of a server."""
        if isinstance(message, bytes):
            return (commands.Audio(message),)
        event = read_object(message)
        data: dict[str, Any] = event["data"]
        match event["type"]:
            case "transcribe":
                self._wanted = data
            case "audio-start":
                return (self._start(data),)
            case "audio-stop":
                return (commands.Stop(),)
            case "describe" | "ping" as kind:
                return (events.Reply(answer(kind, data, self._models.cards)),)
            case "audio-chunk" | "error":
                raise SessionError("bad_message", f"Wyoming: {data.get('text')}", CLOSE_POLICY)
        return ()

    def write(self, event: events.Event) -> Iterable[str]:
        """Translate an event: there is one text, at the end, or an error."""
        match event:
            case events.Utterance():
                self._texts.append(event.text.strip())
                self._language = event.language or self._language
            case events.Failure():
                yield line("error", text=event.message, code=event.code)
            case events.Stopped():
                language = {"language": self._language} if self._language else {}
                yield line("transcript", text=joined(filter(None, self._texts)), **language)

    def _start(self, data: dict[str, Any]) -> commands.Start:
        for name, low, high in (("rate", 8000, 192_000), ("width", 2, 2), ("channels", 1, 8)):
            if not integer_from(low, high)(data.get(name)):
                raise BadStart(name, f"an integer from {low} to {high}", data.get(name))
        wanted, name_of_model = self._wanted, self._wanted.get("name")
        if not isinstance(name_of_model, str | None):
            raise BadStart("name", "a name", name_of_model)
        model = self._models.named(name_of_model, "name")
        named = str(wanted.get("language") or "")
        self._language = language_of(named, model.languages)
        if self._language and self._language not in model.languages:
            raise BadStart("language", f"one of {', '.join(model.languages)}", named)
        lists = [wanted.get(name) or [] for name in ("transcript_names", "transcript_terms")]
        if not all(map(are_texts, lists)):
            raise BadStart("transcript_names", "lists of texts", lists)
        return commands.Start(
            audio=AudioFormat("pcm_s16le", data["rate"], data["channels"], is_mixed=data["channels"] > 1),
            model=name_of_model,
            language=self._language,
            # A home has more names than a window takes: the first ones count, and Wyoming has no event for a warning.
            hotwords=usable_hotwords(chain.from_iterable(lists)),
            interim=False,
        )


class WyomingPort(TcpPort):
    """Serves the port of Wyoming."""

    name = "wyoming"
    path = "/wyoming"

    def __init__(self, settings: Settings) -> None:
        own = settings.of(WyomingSettings)
        super().__init__(settings.host, own.wyoming_port)
        self._networks = own.networks
        self._max_audio_bytes = settings.max_message_kb * 1024

    async def serve_client(self, client: TcpClient) -> None:
        """See `TcpPort.serve_client`."""
        access, models = client.service.access, client.service.models
        write = client.writer.write
        if not client.address:
            # It has left already.
            return
        if not (access.is_open or any(ipaddress.ip_address(client.address) in each for each in self._networks)):
            write(line("error", text="this address is not one of wyoming_networks", code="unauthorized").encode())
            return
        audio: list[Any] = []

        async def read() -> str | bytes:
            event, payload = await self._read(client.reader)
            kind, data = event["type"], event["data"]
            if kind == "audio-start" and not audio:
                audio[:] = map(data.get, FORMAT)
            elif kind == "audio-chunk":
                if list(map(data.get, FORMAT)) == audio:
                    return payload
                data["text"] = f"expected audio-start and then audio of its format, got {list(map(data.get, FORMAT))}"
            return write_object(event)

        try:
            while isinstance(first := await read(), str) and read_object(first)["type"] in ("describe", "ping"):
                event = read_object(first)
                write(answer(event["type"], event["data"], models.cards).encode())
                # This waits for a client that does not read; its time limit for the first event ends the wait.
                await client.writer.drain()
                client.connection.expect(client.service.settings.head_timeout_s)
            client.connection.wait()
            websocket = client.websocket(first, read, lambda text: write(text.encode()) if text else None)
            await serve_session(websocket, WyomingDialect(models), None, client=access.client_without_key())
        except SessionError as error:
            write(line("error", text=str(error), code=error.code).encode())

    async def _read(self, reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
        """The next event and its audio. What is no event becomes one of type `error`."""
        try:
            event = read_object((await reader.readuntil(b"\n")).decode())
            n_data, n_audio = event.get("data_length") or 0, event.get("payload_length") or 0
            if not (integer_from(0, MAX_EVENT_BYTES)(n_data) and integer_from(0, self._max_audio_bytes)(n_audio)):
                raise ValueError(f"lengths of {n_data} and {n_audio}")
            more = read_object((await reader.readexactly(n_data)).decode()) if n_data else {}
            event = {"type": str(event["type"]), "data": {**(event.get("data") or {}), **more}}
        except (asyncio.LimitOverrunError, LookupError, TypeError, ValueError, SessionError) as error:
            return {"type": "error", "data": {"text": f"expected an event, got {error}"[:200]}}, b""
        return event, await reader.readexactly(n_audio) if n_audio else b""


def line(kind: str, **data: Any) -> str:
    """An event as it is sent."""
    return write_object({"type": kind, "data": data}) + "\n"


def answer(kind: str, data: dict[str, Any], models: Sequence[ModelCard]) -> str:
    """The answer to `describe` or `ping`."""
    if kind == "ping":
        return line("pong", text=data.get("text"))
    about = {"attribution": {"name": "tutti", "url": ""}, "installed": True, "version": VERSION}
    served = [
        {"name": each.name, "description": each.name, "languages": list(each.languages)} | about for each in models
    ]
    return line("info", asr=[{"name": "tutti", "description": "Whisper", "models": served} | about])
