"""Reads the small JSON bodies of requests."""

from contextlib import aclosing
from typing import Any

from tutti_server.app.dialects.json_text import read_object
from tutti_server.app.errors import BadMessage, RequestError
from tutti_server.app.files.uploads import Upload

MAX_BODY_BYTES = 65_536


async def json_body(upload: Upload) -> dict[str, Any]:
    """The JSON object in the body of a request; an empty body is an empty object.

    Args:
        upload: receives the body. What is left of a refused one can be discarded by it.

    Raises:
        RequestError: it is too long, or no JSON object.
        ClientDisconnect: the client has left.
    """
    content = b""
    async with aclosing(upload.chunks()) as chunks:
        async for chunk in chunks:
            content += chunk
            if len(content) > MAX_BODY_BYTES:
                raise RequestError(413, f"body: expected at most {MAX_BODY_BYTES} bytes")
    try:
        return read_object(content.decode() or "{}")
    except UnicodeDecodeError as error:
        raise RequestError(400, "body: expected UTF-8") from error
    except BadMessage as error:
        raise RequestError(400, f"body: {error}") from error
