"""`GET /v1/models`: the one model that this server runs, in the shape of OpenAI's API."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tutti_server.app.errors import RequestError, shorten
from tutti_server.app.service.auth import header_key
from tutti_server.app.service.http_errors import error_response, invalid_key
from tutti_server.app.service.service import Service


async def list_models(request: Request) -> Response:
    """The list of models, which has one entry."""
    service: Service = request.app.state.service
    if not service.access.is_valid(header_key(request.headers)):
        return error_response(invalid_key())
    return JSONResponse({"object": "list", "data": [_model(service)]})


async def retrieve_model(request: Request) -> Response:
    """The model, by the name in the list. Transcription accepts any name, and this model answers."""
    service: Service = request.app.state.service
    if not service.access.is_valid(header_key(request.headers)):
        return error_response(invalid_key())
    name = request.path_params["name"]
    if name != service.transcriber.info.name:
        message = f"model: expected {service.transcriber.info.name}, the only one here, got {shorten(name)}"
        return error_response(RequestError(404, message, "model", "model_not_found"))
    return JSONResponse(_model(service))


def _model(service: Service) -> dict[str, Any]:
    info = service.transcriber.info
    return {
        "id": info.name,
        "object": "model",
        "created": service.shared.started,
        "owned_by": "tutti",
        "languages": list(info.languages),
        "tasks": list(info.tasks),
    }
