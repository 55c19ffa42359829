"""Asterisk's AudioSocket: announces a call over HTTP, then streams one side of it over TCP."""

import asyncio
import json
import urllib.request
import uuid

from recording import Recording, pieces

NEEDS_MONO = True
TYPES = {8000: 0x10, 12_000: 0x11, 16_000: 0x12, 24_000: 0x13, 32_000: 0x14, 44_100: 0x15, 48_000: 0x16}
"""The type of the packets with audio, by its sample rate."""


async def play(recording: Recording, url: str, key: str, call: str, speed: float, *, side: str, port: int) -> None:
    """Be the application AudioSocket of a dial plan, which has announced its call."""
    await asyncio.to_thread(_announce, url, key, call, side)
    reader, writer = await asyncio.open_connection(url.split("://")[1].rsplit(":", 1)[0], port)
    writer.write(_packet(0x01, uuid.UUID(call).bytes))
    async for piece in pieces(recording.data, 2 * recording.sample_rate, speed):
        writer.write(_packet(TYPES[recording.sample_rate], piece))
        await writer.drain()
    writer.write(_packet(0x00))
    # The server hangs up too when all text is final.
    await reader.read()
    writer.close()
    await writer.wait_closed()


def _announce(url: str, key: str, call: str, side: str) -> None:
    body = json.dumps({"id": call, "parameters": {"language": "en", "interim": "false", "track": side}}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    address = f"{url.replace('ws', 'http', 1)}/v1/audiosocket/calls"
    urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=10).close()


def _packet(kind: int, payload: bytes = b"") -> bytes:
    return bytes((kind,)) + len(payload).to_bytes(2, "big") + payload
