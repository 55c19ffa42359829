"""`GET /v1/models`: the models of this server, by each of their names, in the shape of OpenAI's API."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tutti_server.app.errors import RequestError, shorten
from tutti_server.app.service.auth import header_key
from tutti_server.app.service.http_errors import authorized
from tutti_server.app.service.service import Service
from tutti_server.engine import api

OPENAI_NAME = "whisper-1"
"""The name of OpenAI's own Whisper. Programs that were written for it look for it in the list, and send it."""


async def list_models(request: Request) -> Response:
    """The list of models: an entry for each name of each model, its own first; the first model is the default."""
    service = await _admitted(request)
    return JSONResponse({"object": "list", "data": [_model(service, *each) for each in _names(service).items()]})


async def retrieve_model(request: Request) -> Response:
    """A model, by a name in the list."""
    service = await _admitted(request)
    name = request.path_params["name"]
    names = _names(service)
    if name not in names:
        of_one = ", all names of one model" if len(service.models.cards) == 1 else ""
        message = f"model: expected {' or '.join(names)}{of_one}, got {shorten(name)}"
        raise RequestError(404, message, "model", "model_not_found")
    return JSONResponse(_model(service, name, names[name]))


async def _admitted(request: Request) -> Service:
    """The service, for a client with a key of any scope, or with a client secret: SDKs ask here whether it is valid."""
    service: Service = request.app.state.service
    credential = header_key(request.headers)
    is_secret = service.access.client_secret(credential) is not None
    authorized(await service.access.live_client(credential) if is_secret else service.access.known_client(credential))
    return service


def _names(service: Service) -> dict[str, api.ModelCard]:
    first, *others = service.models.cards
    names = {name: card for card in (first, *others) for name in (card.name, *card.aliases)}
    # After the names of the first model, which answers to it.
    own = (first.name, *first.aliases, OPENAI_NAME)
    return {name: names.get(name, first) for name in dict.fromkeys((*own, *names))}


def _model(service: Service, name: str, card: api.ModelCard) -> dict[str, Any]:
    first, *others = service.models.cards
    model = {
        "id": name,
        "object": "model",
        "created": service.shared.started,
        "owned_by": "tutti",
        "root": card.name,
        "languages": list(card.languages),
        "tasks": list(card.tasks),
    }
    return model | ({"is_default": card.name == first.name} if others else {})
