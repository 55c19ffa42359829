"""The endpoint that announces a call of AudioSocket, which itself carries no key."""

import time
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tutti_server.app.dialects.body_endpoint import json_body
from tutti_server.app.dialects.call_streams.wire import TRACK, own_parameters, side_of, start_command
from tutti_server.app.errors import RETRY_AFTER_S, BadStart, RequestError
from tutti_server.app.files.uploads import Upload
from tutti_server.app.languages import language_of
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.service.auth import header_key
from tutti_server.app.service.http_errors import authorized
from tutti_server.app.service.service import Service
from tutti_server.app.sharing.store import StoreAway
from tutti_server.plugins.carriers.audiosocket.announcements import VALID_S, Announcement, Announcements
from tutti_server.plugins.carriers.settings import CarrierSettings

AUDIO = AudioFormat("pcm_s16le", 8000)
"""For the check of the options: the format that the call will have is not known yet."""


async def announce_call(request: Request) -> Response:
    """Expect a call for some minutes. The answer has the id with which Asterisk must connect."""
    service: Service = request.app.state.service
    key = header_key(request.headers)
    authorized(service.access.client(key))
    _check_service(service)
    call, parameters = read_announcement(await json_body(Upload(request, service.settings)))
    _check_model(service, parameters)
    secret = service.access.sign_client_secret(key, int(time.time()) + VALID_S, {})
    try:
        is_new = await Announcements(service.store).add(call, Announcement(secret.value, parameters))
    except StoreAway as error:
        message = f"the call is not announced, as Redis cannot be reached; try again in {RETRY_AFTER_S} s"
        raise RequestError(503, message, code="redis_away") from error
    if not is_new:
        raise RequestError(409, f"id: expected a new one, got {call}", "id", "call_is_known")
    return JSONResponse({"id": str(call), "expires_at": secret.expires_at}, 201)


def read_announcement(fields: dict[str, Any]) -> tuple[uuid.UUID, dict[str, str]]:
    """The id and the parameters of a call that is announced.

    Raises:
        RequestError: one of them is not valid, or there are other fields.
    """
    if unknown := sorted(fields.keys() - {"id", "parameters"}):
        raise RequestError(400, f"expected id and parameters, got {unknown[0][:80]!r}", unknown[0][:80])
    parameters = fields.get("parameters", {})
    if not isinstance(parameters, dict) or not all(isinstance(value, str) for value in parameters.values()):
        raise RequestError(400, "parameters: expected an object with values of text", "parameters")
    try:
        call = uuid.UUID(fields["id"]) if "id" in fields else uuid.uuid4()
    except (ValueError, AttributeError, TypeError):
        raise RequestError(400, f"id: expected a UUID, got {str(fields['id'])[:80]!r}", "id") from None
    try:
        side_of(parameters)
        own_parameters(parameters, (TRACK,))
        start_command(parameters, AUDIO)
    except BadStart as error:
        raise RequestError(400, error.message, error.field) from error
    return call, parameters


def _check_model(service: Service, parameters: dict[str, str]) -> None:
    """Check that the model is there and knows the languages, as the session will: Asterisk itself shows no error."""
    start = start_command(parameters, AUDIO)
    try:
        known = service.models.named(start.model).languages
        for name, languages in (("language", (start.language,)), ("languages", start.languages)):
            for language in languages:
                if language_of(language, known) not in (None, *known):
                    raise BadStart(name, f"one of the model's languages ({', '.join(known)})", language)
    except BadStart as error:
        raise RequestError(400, error.message, error.field) from error


def _check_service(service: Service) -> None:
    """Check that AudioSocket is served, at a gateway that will know the call. Raises `RequestError`."""
    if not service.settings.of(CarrierSettings).audiosocket_port:
        raise RequestError(404, "AudioSocket is not served here: it needs TUTTI_AUDIOSOCKET_PORT", code="not_found")
    if not service.is_known_everywhere:
        message = "with more than one gateway, announcements of calls need TUTTI_REDIS_URL"
        raise RequestError(501, message, code="not_supported")
