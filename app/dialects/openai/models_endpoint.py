"""`GET /v1/models`: the one model that is served, in the shape of OpenAI's API."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.errors import shorten
from app.service.http_errors import RequestError, bearer_key, unauthorized
from app.service.service import Service


async def list_models(request: Request) -> Response:
    service: Service = request.app.state.service
    if not service.is_allowed(bearer_key(request.headers.get("authorization"))):
        return unauthorized().response()
    return JSONResponse({"object": "list", "data": [_model(service)]})


async def retrieve_model(request: Request) -> Response:
    """By the name that the list gives. Transcription takes any name, and the same model answers."""
    service: Service = request.app.state.service
    if not service.is_allowed(bearer_key(request.headers.get("authorization"))):
        return unauthorized().response()
    name = request.path_params["name"]
    if name != service.transcriber.info.name:
        message = f"model: expected {service.transcriber.info.name}, the only one here, got {shorten(name)}"
        return RequestError(404, message, "model", "model_not_found").response()
    return JSONResponse(_model(service))


def _model(service: Service) -> dict[str, Any]:
    info = service.transcriber.info
    return {
        "id": info.name,
        "object": "model",
        "created": service.started,
        "owned_by": "tutti",
        "languages": list(info.languages),
        "tasks": list(info.tasks),
    }
