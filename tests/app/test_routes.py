"""Health, metrics, models and the page."""

import httpx
import pytest

from tests.fakes import FakeTranscriber


async def get(url: str, **options) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(url, **options)


async def test_ready_while_sessions_are_welcome(serve) -> None:
    transcriber = FakeTranscriber()
    server = await serve(transcriber)
    assert (await get(f"{server.http}/healthz")).status_code == 200
    assert (await get(f"{server.http}/readyz")).status_code == 200
    transcriber.is_alive = False
    assert (await get(f"{server.http}/readyz")).status_code == 503
    transcriber.is_alive, server.service.is_draining = True, True
    assert (await get(f"{server.http}/readyz")).status_code == 503


async def test_metrics_are_in_prometheus_format(serve) -> None:
    server = await serve()
    response = await get(f"{server.http}/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    for name in (
        "tutti_sessions_open 0.0",
        "tutti_engine_encode_batch_bucket",
        'tutti_engine_queue_seconds_bucket{le="+Inf",priority="final"}',
        "tutti_engine_running 0.0",
    ):
        assert name in response.text


async def test_models_lists_the_one_that_is_served(serve) -> None:
    server = await serve(api_keys="k")
    assert (await get(f"{server.http}/v1/models")).status_code == 401
    response = await get(f"{server.http}/v1/models", headers={"Authorization": "Bearer k"})
    (model,) = response.json()["data"]
    assert (model["id"], model["object"], model["languages"]) == ("fake", "model", ["en", "de"])


@pytest.mark.parametrize("path", ["/", "/static/captions.js", "/static/tutti/index.js", "/static/tutti/worklet.js"])
async def test_the_page_is_served_with_all_it_needs(serve, path: str) -> None:
    server = await serve()
    response = await get(server.http + path)
    assert response.status_code == 200
    if path == "/":
        assert "default-src 'self'" in response.headers["content-security-policy"]


async def test_unknown_paths_are_not_found(serve) -> None:
    server = await serve()
    assert (await get(f"{server.http}/v2/nothing")).status_code == 404
