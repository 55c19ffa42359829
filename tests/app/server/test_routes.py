"""Health, metrics, models and the page."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.conftest import Running, Serve, refusal
from tests.compat.conformance import supported
from tests.fakes import MODEL, FakeTranscriber


async def test_ready_while_sessions_are_welcome(serve: Serve) -> None:
    """One with too few engines is ready, as the others decode for all, and says why."""
    transcriber = FakeTranscriber(problems=("the engine-1 has another model",))
    server = await serve(transcriber)
    assert (await server.get("/healthz")).status_code == 200
    ready = await server.get("/readyz")
    assert (ready.status_code, ready.text) == (200, "ready; the engine-1 has another model\n")
    transcriber.is_alive = False
    lost = await server.get("/readyz")
    assert (lost.status_code, lost.headers["retry-after"]) == (503, "5")
    transcriber.is_alive, server.service.admission.is_draining = True, True
    assert (await server.get("/readyz")).status_code == 503


async def test_a_server_without_engine_is_not_healthy_and_refuses_sessions(serve: Serve) -> None:
    """An engine that comes back makes it unready; one that is lost makes it unhealthy, so that it is restarted."""
    transcriber = FakeTranscriber(is_alive=False)
    server = await serve(transcriber)
    assert (await server.get("/healthz")).status_code == 200
    response = await refusal(server.stream)
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert server.metric("tutti_refused_total", reason="no_engine") == 1
    transcriber.is_lost = True
    health = await server.get("/healthz")
    assert (health.status_code, health.text) == (503, "the engine has died\n")
    transcriber.is_alive, transcriber.is_lost = True, False


async def test_metrics_are_in_prometheus_format(server: Running) -> None:
    response = await server.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    for name in (
        "tutti_sessions_open 0.0",
        "tutti_engine_encode_batch_bucket",
        'tutti_engine_queue_seconds_bucket{le="+Inf",priority="final"}',
        "tutti_engine_running 0.0",
    ):
        assert name in response.text


@supported("openai-rest", "GET /v1/models")
async def test_models_lists_the_one_that_is_served(serve: Serve) -> None:
    server = await serve(api_keys="k")
    assert (await server.get("/v1/models")).status_code == 401
    response = await server.get("/v1/models", headers={"Authorization": "Bearer k"})
    model, openai_name = response.json()["data"]
    assert (model["id"], model["object"], model["languages"]) == ("fake", "model", ["en", "de"])
    assert openai_name == model | {"id": "whisper-1"}


async def test_the_page_is_served_without_a_key_with_all_it_needs(serve: Serve) -> None:
    """Each file is fresh after an update. The page learns the model's name, what it can hear, and its languages."""
    server = await serve(FakeTranscriber(info=replace(MODEL, languages=("en", "ht", "xx"))), api_keys="k")
    for path in ("", "static/captions.js", "static/tutti/index.js", "static/tutti/worklet.js", "service-worker.js"):
        response = await server.get(f"/{path}")
        assert (response.status_code, response.headers["cache-control"]) == (200, "no-cache"), path
    assert (await server.get("/page/model")).json() == {
        "name": "fake",
        "translations": [],
        "languages": [
            {"code": "en", "name": "English"},
            {"code": "ht", "name": "Haitian Creole"},
            {"code": "xx", "name": "Xx"},
        ],
        "rooms": True,
    }


async def test_a_page_without_its_client_says_what_is_missing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a checkout in which nothing was installed. All else is served."""
    monkeypatch.setattr("tutti_server.app.server.routes.CLIENT", tmp_path / "tutti")
    server = await serve()
    for path in ("/", "/calls", "/captions/choir"):
        response = await server.get(path)
        assert (response.status_code, response.text.split(":")[0]) == (500, "the client of the pages is not built")
    assert (await server.get("/readyz")).text == "ready\n"


async def test_every_answer_has_an_id_of_its_own(serve: Serve) -> None:
    """Also one that says that a path, a method or a socket is refused."""
    server = await serve(api_keys="k")
    answers = [await server.get(path) for path in ("/", "/", "/v2/nothing", "/v1/audio/transcriptions")]
    *_, unknown, other = answers
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
    assert (other.status_code, other.headers["allow"]) == (405, "POST")
    assert other.json()["error"]["code"] == "method_not_allowed"
    refused = await refusal(server.stream)
    ids = {each.headers["x-request-id"] for each in answers} | {refused.headers["x-request-id"]}
    assert len(ids) == 5 and all(each.startswith("req_") for each in ids)


async def test_the_manifest_names_files_that_exist(server: Running) -> None:
    """A browser installs the page only with its icons."""
    response = await server.get("/static/manifest.webmanifest")
    manifest = response.json()
    assert (response.headers["content-type"], manifest["start_url"]) == ("application/manifest+json", "/")
    for icon in manifest["icons"]:
        assert (await server.get(icon["src"])).headers["content-type"] == icon["type"]


@supported("openai-rest", "GET /v1/models/{model}")
async def test_a_model_is_found_by_its_name(serve: Serve) -> None:
    """Names from the hub contain a slash, which clients escape."""
    server = await serve(FakeTranscriber(info=replace(MODEL, name="openai/whisper-small")), api_keys="k")
    headers = {"Authorization": "Bearer k"}
    response = await server.get("/v1/models/openai%2Fwhisper-small", headers=headers)
    assert response.json()["id"] == "openai/whisper-small"
    missing = await server.get("/v1/models/whisper-2", headers=headers)
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert (await server.get("/v1/models/whisper-1")).status_code == 401


async def test_a_route_that_fails_is_answered(serve: Serve) -> None:
    """The error names the request and nothing of the server's insides, and the server continues."""
    page = "https://app.example"
    server = await serve(allowed_origins=page)
    del server.service.shared
    response = await server.get("/v1/models", headers={"origin": page})
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (500, "server_error", "internal_error")
    assert response.headers["x-request-id"] in error["message"] and "shared" not in error["message"]
    assert response.headers["access-control-allow-origin"] == page
    assert response.headers["x-content-type-options"] == "nosniff"
    assert (await server.get("/healthz")).status_code == 200


async def test_a_request_without_upgrade_learns_that_a_websocket_is_served_there(server: Running) -> None:
    """A proxy that does not know WebSockets takes the header away."""
    for path, status, is_socket in (("/v1/stream", 404, True), ("/v1/listen", 405, True), ("/v1/nothing", 404, False)):
        answer = await server.get(path)
        assert answer.status_code == status
        assert ("expected a WebSocket here" in answer.json()["error"]["message"]) == is_socket
