"""`GET /v1/models`: the one model that this server runs, by each of its names, in the shape of OpenAI's API."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tutti_server.app.errors import RequestError, shorten
from tutti_server.app.service.auth import header_key
from tutti_server.app.service.http_errors import error_response, invalid_key
from tutti_server.app.service.service import Service

OPENAI_NAME = "whisper-1"
"""The name of OpenAI's own Whisper. Programs that were written for it look for it in the list, and send it."""


async def list_models(request: Request) -> Response:
    """The list of models: an entry for each name of the model, its own first."""
    service: Service = request.app.state.service
    if not service.access.is_valid(header_key(request.headers)):
        return error_response(invalid_key())
    return JSONResponse({"object": "list", "data": [_model(service, name) for name in _names(service)]})


async def retrieve_model(request: Request) -> Response:
    """The model, by a name in the list. Transcription accepts any name, and this model answers."""
    service: Service = request.app.state.service
    if not service.access.is_valid(header_key(request.headers)):
        return error_response(invalid_key())
    name = request.path_params["name"]
    if name not in _names(service):
        message = f"model: expected {' or '.join(_names(service))}, all names of one model, got {shorten(name)}"
        return error_response(RequestError(404, message, "model", "model_not_found"))
    return JSONResponse(_model(service, name))


def _names(service: Service) -> list[str]:
    info = service.transcriber.info
    return list(dict.fromkeys((info.name, *info.aliases, OPENAI_NAME)))


def _model(service: Service, name: str) -> dict[str, Any]:
    info = service.transcriber.info
    return {
        "id": name,
        "object": "model",
        "created": service.shared.started,
        "owned_by": "tutti",
        "root": info.name,
        "languages": list(info.languages),
        "tasks": list(info.tasks),
    }
