"""The command line in a process of its own, as a user runs it."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from app.cli.demo import SAMPLE
from tests.app.cli.child import ENVIRONMENT

AUDIO = Path(__file__).parents[2] / "audio"


def tutti(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env=ENVIRONMENT | environment,
    )


@pytest.mark.parametrize("command", [(), ("serve",), ("transcribe",), ("demo",), ("models",)])
def test_help_explains_a_command(command: tuple[str, ...]) -> None:
    done = tutti(*command, "--help")
    assert done.returncode == 0
    assert "Usage: tutti" in done.stdout


def test_serve_help_names_every_setting_and_its_variable() -> None:
    text = tutti("serve", "--help").stdout
    assert "--max-sessions" in text and "TUTTI_MAX_SESSIONS" in text


def test_help_shows_the_values_of_a_setting_that_has_a_list_of_them() -> None:
    text = tutti("serve", "--help").stdout
    for choices in ("[auto|cpu|cuda]", "[agreement|attention]", "[debug|info|warning|error]"):
        assert choices in text


def test_version_is_that_of_the_package() -> None:
    assert tutti("--version").stdout == "tutti, version 0.1.0\n"


def test_models_are_listed() -> None:
    text = tutti("models").stdout
    assert "tutti-demo" in text and "openai/whisper-large-v3-turbo" in text


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (("serve", "--port", "99999"), {}, "port: expected 0 to 65535, got 99999"),
        (("serve", "--port", "http"), {}, "'http' is not a valid integer"),
        (("serve", "--host", "0.0.0.0"), {}, "--allow-anyone"),
        (("serve",), {"TUTTI_PROT": "8000"}, "TUTTI_PROT"),
        (("serve",), {"TUTTI_MAX_SESSIONS": "many"}, "TUTTI_MAX_SESSIONS"),
        (("serve", "--model", "/no/such/folder", "--port", "0"), {}, "/no/such/folder"),
        (("serve", "--device", "tpu", "--port", "0"), {}, "'tpu' is not one of 'auto', 'cpu', 'cuda'"),
        (("serve", "--model", "/no/such/folder", "--port", "0", "--gateways", "1"), {}, "/no/such/folder"),
        (("serve", "--device", "cpu", "--dtype", "float16", "--port", "0", "--gateways", "1"), {}, "dtype: expected"),
        (("serve", "--gateways", "-1"), {}, "gateways: expected 0 or more"),
        (("transcribe", str(SAMPLE), "--audio-context", "short"), {}, "not one of 'auto', 'interims', 'full'"),
        (("transcribe", str(SAMPLE)), {"TUTTI_AUDIO_CONTEXT": "short"}, "TUTTI_AUDIO_CONTEXT"),
        (("transcribe", "/no/such/file.wav"), {}, "/no/such/file.wav"),
        (("transcribe", __file__), {}, "file: expected audio"),
        (("transcribe", str(SAMPLE), "--language", "xx"), {}, "language: expected"),
        (("demo", "--url", "ws://127.0.0.1:9"), {}, "127.0.0.1:9"),
        (("demo", "--api-key", "k1"), {}, "--api-key: expected --url with it"),
    ],
)
def test_a_mistake_of_the_user_is_explained_in_one_line(
    arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    """The command exits with an error code and one sentence, without a traceback."""
    done = tutti(*arguments, **environment)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("gateways", ["0", "2"])
def test_a_port_in_use_is_explained(gateways: str) -> None:
    """Also for gateways, which share a port, and if the other program allows to share it."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        done = tutti("serve", "--port", str(taken.getsockname()[1]), "--gateways", gateways)
    assert done.returncode != 0
    assert "another --port" in done.stderr


@pytest.mark.parametrize("flag", ["--no-context", "--context"])
def test_a_file_is_transcribed_without_a_server(flag: str) -> None:
    """The output has the text only, so that it can be piped."""
    done = tutti("transcribe", str(AUDIO / "hello.flac"), "--language", "en", flag)
    assert done.stderr == ""
    assert done.stdout == "Hello everyone, and welcome to the morning meeting.\n"


def test_json_output_has_times() -> None:
    body = json.loads(tutti("transcribe", str(AUDIO / "call.flac"), "--format", "json", "--language", "en").stdout)
    assert body["language"] == "en"
    assert len(body["segments"]) >= 2
    assert all(segment["start_s"] < segment["end_s"] for segment in body["segments"])
    assert body["uncovered"] == []


def test_the_demo_shows_captions_and_figures() -> None:
    """The recording is streamed over a real socket; its segments and a summary line are shown."""
    done = tutti("demo", "--file", str(AUDIO / "hello.flac"))
    assert done.returncode == 0, done.stderr
    assert "everyone, and welcome to the morning meeting." in done.stdout
    assert "s of audio, 8 words · first text" in done.stdout


def test_serve_prints_its_addresses_and_stops_on_sigterm() -> None:
    """/readyz answers 200, and SIGTERM ends the server cleanly."""
    server = subprocess.Popen(
        [sys.executable, "-m", "app", "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        assert server.stdout
        lines = [server.stdout.readline() for _ in range(5)]
        page = next(line.split()[-1] for line in lines if "captions" in line)
        transport = httpx.HTTPTransport(retries=5)
        with httpx.Client(transport=transport) as client:
            assert client.get(f"{page}readyz").status_code == 200
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=30)
    finally:
        server.kill()
        server.wait()
    assert server.returncode == 0
    assert "Traceback" not in errors
