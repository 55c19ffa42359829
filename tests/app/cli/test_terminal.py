"""What a server prints when it is ready."""

from dataclasses import replace

import pytest

from tests.fakes import MODEL, FakeTranscriber
from tutti_server.app.cli.terminal import banner, console
from tutti_server.app.service.settings import Settings


@pytest.mark.parametrize(
    ("host", "address"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("192.168.1.5", "192.168.1.5")]
)
def test_a_server_shows_an_address_that_can_be_opened(host: str, address: str) -> None:
    """No browser opens the address that stands for all addresses of a machine."""
    shown = banner(Settings(host=host, allow_anyone=True), MODEL, FakeTranscriber().stats(), 8000)
    assert f"Ready for captions: http://{address}:8000/[/]" in shown.splitlines()[5]
    assert ("listens on every address" in shown) == (host in ("0.0.0.0", "::"))


def test_addresses_and_names_of_models_are_not_taken_for_markup() -> None:
    model = replace(MODEL, name="whisper[ft]-de")
    text = banner(Settings(host="fd00::5", allow_anyone=True), model, FakeTranscriber().stats(), 8000)
    out = console()
    with out.capture() as capture:
        out.print(text, soft_wrap=True)
    first, *_, last = capture.get().splitlines()
    assert "model whisper[ft]-de (" in first
    assert last == "Ready for captions: http://[fd00::5]:8000/"
