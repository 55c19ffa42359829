"""What a server prints when it is ready."""

import pytest

from tests.fakes import MODEL, FakeTranscriber
from tutti_server.app.cli.terminal import banner
from tutti_server.app.service.settings import Settings


@pytest.mark.parametrize(
    ("host", "address"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("192.168.1.5", "192.168.1.5")]
)
def test_a_server_shows_an_address_that_can_be_opened(host: str, address: str) -> None:
    """No browser opens the address that stands for all addresses of a machine."""
    shown = banner(Settings(host=host, allow_anyone=True), MODEL, FakeTranscriber().stats(), 8000)
    assert f"Ready for captions: http://{address}:8000/[/]" in shown.splitlines()[5]
    assert ("listens on every address" in shown) == (host in ("0.0.0.0", "::"))
