"""Which web pages may use the server, by which names, and what browsers learn from every answer."""

import logging
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from tests.app.conftest import Running, Serve, refusal
from tutti_server.app.server.answer_headers import PAGE_POLICY
from tutti_server.app.server.guard import MAX_LOGGED

SOCKETS = (
    *("/", "/v1/stream", "/v1/listen", "/v2/listen?model=flux-general-en"),
    *("/v1/realtime", "/v1/twilio", "/v1/calls/CA1"),
)
POSTS = ("/v1/listen", "/v1/audio/transcriptions", "/v1/realtime/client_secrets", "/v1/auth/grant")
EVIL = "https://evil.example"


async def post(server: Running, path: str = "/v1/realtime/client_secrets", **headers: str) -> httpx.Response:
    return await server.post(path, headers=headers)


async def upgrade(server: Running, path: str = "/v1/stream", **options: Any) -> int:
    """The status of the answer."""
    try:
        async with connect(f"ws://{server.address}{path}", **options):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


async def test_foreign_pages_can_use_no_route(server: Running) -> None:
    """Neither a WebSocket nor a post; a program without an origin can."""
    for path in SOCKETS:
        assert await upgrade(server, path, origin=Origin(EVIL)) == 403, path
        assert await upgrade(server, path) == 101, path
    for path in POSTS:
        assert (await post(server, path, origin=EVIL)).status_code == 403, path
        assert (await post(server, path)).status_code != 403, path
    assert server.metric("tutti_strangers_refused_total", reason="foreign") == len(SOCKETS) + len(POSTS)
    assert server.metric("tutti_sessions_open") == 0


async def test_the_servers_own_pages_are_served(server: Running) -> None:
    """By every name of this machine, with its port; a page of another port is another program's."""
    _, port = server.address.split(":")
    for host in (server.address, f"localhost:{port}", f"[::1]:{port}", f"captions.localhost:{port}"):
        for origin in (f"http://{host}", f"http://localhost:{port}"):
            assert (await post(server, host=host, origin=origin)).status_code == 200, (host, origin)
    for origin in (
        "http://localhost:1",
        "http://localhost",
        "null",
        "",
        "localhost",
        f"http://localhost:{port}.evil.example",
    ):
        response = await post(server, origin=origin)
        assert (response.status_code, response.json()["error"]["code"]) == (403, "origin_not_allowed"), origin
    for origin, host in (("https://192.0.2.1", "192.0.2.1"), ("https://192.0.2.1", "192.0.2.1:443")):
        assert (await post(server, host=host, origin=origin)).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "@localhost", "[x"]
)
async def test_no_page_makes_its_name_point_here(server: Running, host: str) -> None:
    """Its origin is its own host then, so that only the host tells it apart."""
    for path in ("/", "/metrics"):
        response = await server.get(path, headers={"host": host, "origin": f"http://{host}"})
        assert (response.status_code, response.json()["error"]["code"]) == (403, "host_not_allowed")


async def test_listed_names_and_origins_are_served(serve: Serve) -> None:
    """A proxy's name, and pages elsewhere, which may read the answers as well."""
    server = await serve(allowed_hosts="captions.example", allowed_origins="https://app.example, null")
    assert (await post(server, host="captions.example", origin="https://captions.example")).status_code == 200
    answer = await post(server, origin="https://app.example")
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://app.example")
    assert await upgrade(server, origin=Origin("null")) == 101
    assert (await post(server, origin=EVIL)).status_code == 403
    assert (await post(server, host="other.example")).status_code == 403
    async with httpx.AsyncClient() as client:
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        preflight = await client.options(server.http + POSTS[0], headers={"origin": "https://app.example", **asked})
    assert (preflight.status_code, preflight.headers["access-control-allow-headers"]) == (200, "authorization")


async def test_a_key_replaces_the_check(serve: Serve) -> None:
    """Any page with a key may open sessions, by any name. Origins that are listed are checked nevertheless."""
    server = await serve(api_keys="k")
    headers = {"Authorization": "Bearer k", "Host": "captions.example", "Origin": EVIL}
    answer = await server.post(POSTS[2], headers=headers)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers
    listing = await serve(api_keys="k", allowed_origins="https://app.example")
    assert (await post(listing, origin=EVIL, authorization="Bearer k")).status_code == 403


async def test_every_answer_tells_browsers_what_it_may_do(serve: Serve) -> None:
    """The pages, by every address that they have, their files, data, errors, and refused upgrades."""
    server = await serve(api_keys="k")
    pages = ("/", "/calls", "/captions/abc", *(f"/static/{name}.html" for name in ("index", "calls", "room")))
    others = ("/static/captions.js", "/service-worker.js", "/healthz", "/nowhere")
    answers = [await server.get(path) for path in (*pages, *others)]
    answers.append(await server.post("/v1/listen"))
    for each in (*(answer.headers for answer in answers), (await refusal(server.stream)).headers):
        assert each["x-content-type-options"] == "nosniff"
        assert each["content-security-policy"] == PAGE_POLICY


async def test_pages_of_any_origin_load_the_client_and_nothing_else(serve: Serve) -> None:
    """A module of another origin needs the header; the answer says as well whether the page may open sessions."""
    cases: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"api_keys": "k"}, False),
        ({"allowed_origins": EVIL}, False),
    ]
    for settings, is_refused in cases:
        server = await serve(**settings)
        async with httpx.AsyncClient(headers={"origin": EVIL}) as client:
            files = [await client.get(f"{server.http}/static/tutti/{name}") for name in ("index.js", "worklet.js")]
            tag = files[0].headers["etag"]
            unchanged = await client.head(f"{server.http}/static/tutti/index.js", headers={"if-none-match": tag})
            others = [await client.get(server.http + path) for path in ("/", "/static/captions.js", "/v1/models")]
        assert [each.status_code for each in (*files, unchanged)] == [200, 200, 304]
        for each in (*files, unchanged):
            assert each.headers["access-control-allow-origin"] in ("*", EVIL)
            assert (each.headers.get("x-tutti-origin") == "refused") is is_refused
        expected = EVIL if "allowed_origins" in settings else None
        assert {each.headers.get("access-control-allow-origin") for each in others} == {expected}


async def test_the_log_names_a_refused_origin_and_its_setting_once(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """So does it a host; a flood of made-up origins does not fill it."""
    caplog.set_level(logging.WARNING, "tutti_server.app.server.guard")
    server = await serve()
    for _ in range(2):
        await upgrade(server, origin=Origin(EVIL))
        await post(server, host="evil.example")
    assert [record.getMessage() for record in caplog.records] == [
        f"a web page was refused: origin: expected the server's own, or one of TUTTI_ALLOWED_ORIGINS, got '{EVIL}'",
        "a web page was refused: host: expected a name of this machine, or one of TUTTI_ALLOWED_HOSTS, "
        "got 'evil.example'",
    ]
    for number in range(MAX_LOGGED):
        await post(server, origin=f"{EVIL}:{number + 1}")
    assert len(caplog.records) == MAX_LOGGED
    assert "further ones are counted only" in caplog.records[-1].getMessage()
