"""Genesys AudioHook, which streams both sides of a conversation in mu-law and receives its transcripts."""

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

from recording import Recording, pieces
from websockets.asyncio.client import connect

NEEDS_MONO = False
CHANNELS = ("external", "internal")


async def play(recording: Recording, url: str, key: str, call: str, speed: float) -> None:
    """Be Genesys: a signed request, `open`, audio, and `close`, which is answered when all text is final."""
    session, organization = str(uuid.uuid4()), str(uuid.uuid4())
    target = "/v1/audiohook?interim=false"
    headers = _headers(urlsplit(url).netloc, target, key or "none", session, organization)
    async with connect(url + target, additional_headers=headers, compression=None) as socket:
        seq = serverseq = 0

        async def send(kind: str, parameters: dict[str, Any]) -> None:
            nonlocal seq
            seq += 1
            frame = {"version": "2", "id": session, "type": kind, "seq": seq, "serverseq": serverseq}
            await socket.send(json.dumps({**frame, "position": "PT0S", "parameters": parameters}))

        media = {"type": "audio", "format": "PCMU", "channels": CHANNELS[: recording.channels], "rate": 8000}
        opening = {"organizationId": organization, "conversationId": call, "language": "en-US", "media": [media]}
        await send("open", opening)
        serverseq = json.loads(await socket.recv())["seq"]
        async for piece in pieces(recording.mulaw(), 8000 * recording.channels, speed):
            await socket.send(piece)
        await send("close", {"reason": "end"})
        async for message in socket:
            if json.loads(message)["type"] in ("closed", "disconnect"):
                break


def _headers(authority: str, target: str, key: str, session: str, organization: str) -> dict[str, str]:
    """The headers of the request, signed if `AUDIOHOOK_SECRET` has a client secret in base64."""
    headers = {
        "audiohook-organization-id": organization,
        "audiohook-correlation-id": str(uuid.uuid4()),
        "audiohook-session-id": session,
        "x-api-key": key,
    }
    secret = base64.b64decode(os.environ.get("AUDIOHOOK_SECRET", ""))
    if not secret:
        return headers
    values = {"@request-target": target, "@authority": authority.lower(), **headers}
    now, nonce = int(time.time()), secrets.token_urlsafe(16)
    covered = " ".join(f'"{name}"' for name in values)
    params = f'({covered});keyid="{key}";nonce="{nonce}";alg="hmac-sha256";created={now};expires={now + 10}'
    lines = [*(f'"{name}": {value}' for name, value in values.items()), f'"@signature-params": {params}']
    digest = hmac.new(secret, "\n".join(lines).encode(), hashlib.sha256).digest()
    return {**headers, "signature": f"sig1=:{base64.b64encode(digest).decode()}:", "signature-input": f"sig1={params}"}
