"""The command line in a process of its own, as a user runs it."""

import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.app.cli.child import ENVIRONMENT
from tests.app.cli.prepared import PreparedTutti, prepared_tutti
from tutti_server.app.version import VERSION
from tutti_server.engine.checkpoint.catalog import EMBEDDED_MODEL

AUDIO = Path(__file__).parents[2] / "audio"
HELLO = str(AUDIO / "hello.flac")
FULL_DISK = Path("/dev/full")


def tutti(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tutti_server.app", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env=ENVIRONMENT | environment,
    )


@pytest.fixture(scope="module")
def prepared() -> Iterator[PreparedTutti]:
    """Commands whose imports are done."""
    with prepared_tutti() as prepared:
        yield prepared


def test_help_explains_commands_and_settings(prepared: PreparedTutti) -> None:
    """Each example stands on a line, and each setting has its variable and the list of its values."""
    for command in ((), ("demo",), ("warm",), ("adapt",), ("models",)):
        shown = prepared(*command, "--help")
        assert shown.returncode == 0 and "Usage: tutti" in shown.stdout and "\\b" not in shown.stdout
    lines = [line.strip() for line in prepared("transcribe", "--help").stdout.splitlines()]
    assert "tutti transcribe talk.mp3" in lines
    text = prepared("serve", "--help").stdout
    for part in ("--max-sessions", "TUTTI_MAX_SESSIONS", "[auto|cpu|cuda]", "[agreement|attention]"):
        assert part in text


def test_version_is_that_of_the_package() -> None:
    assert tutti("--version").stdout == f"tutti, version {VERSION}\n"


def test_an_engine_is_started_once_ahead(prepared: PreparedTutti) -> None:
    done = prepared("warm", "--threads", "1")
    assert re.fullmatch(
        r"\S+ on cpu in \w+: ready after [\d.]+ s, and a window of a second after [\d.]+ s more\.\n", done.stdout
    )


def test_models_are_listed(prepared: PreparedTutti) -> None:
    text = prepared("models").stdout
    assert EMBEDDED_MODEL in text and "openai/whisper-large-v3-turbo" in text


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (("serve", "--port", "99999"), {}, "port: expected 0 to 65535, got 99999"),
        (("serve", "--port", "http"), {}, "'http' is not a valid integer"),
        (("serve", "--host", "0.0.0.0"), {}, "--allow-anyone"),
        (("serve",), {"TUTTI_PROT": "8000"}, "TUTTI_PROT"),
        (("serve",), {"TUTTI_MAX_SESSIONS": "many"}, "TUTTI_MAX_SESSIONS"),
        (("serve", "--model", "/no/such/folder", "--port", "0"), {}, "/no/such/folder"),
        (("serve", "--model", "~no-such-user/x", "--port", "0"), {}, "~no-such-user/x: cannot be looked for"),
        (("serve", "--device", "tpu", "--port", "0"), {}, "'tpu' is not one of 'auto', 'cpu', 'cuda'"),
        (("serve", "--device", "cpu", "--dtype", "float16", "--port", "0", "--gateways", "1"), {}, "dtype: expected"),
        (("serve", "--turn-model", HELLO, "--port", "0"), {}, "hello.flac: expected a model with one input"),
        (("serve",), {"TUTTI_ENGINES": "two"}, "engines: expected auto, or 1 or more, got 'two'"),
        (("serve",), {"FORWARDED_ALLOW_IPS": "proxy"}, "trusted_proxies: expected addresses and networks, got 'proxy'"),
        (("transcribe", HELLO), {"TUTTI_AUDIO_CONTEXT": "short"}, "TUTTI_AUDIO_CONTEXT"),
        (("transcribe", "/no/such/file.wav"), {}, "/no/such/file.wav: expected a file or a folder"),
        (("transcribe", "/no/such/file.wav", "-o", "/no/such/out.txt"), {}, "/file.wav: expected a file or a folder"),
        (("transcribe", __file__), {}, "test_commands.py: expected audio in a format that FFmpeg decodes"),
        (("transcribe", str(Path(__file__).parent)), {}, "expected a folder with audio or video files"),
        (("transcribe", str(AUDIO), "--format", "srt"), {}, "--format srt: expected --beside or --output"),
        (("transcribe", str(AUDIO), "-o", "all.txt"), {}, "--output: expected a folder for the transcripts of 5"),
        (("transcribe", HELLO, "-o", HELLO), {}, "--output: expected another file than the recording"),
        (("transcribe", HELLO, "-o", "x" * 300), {}, "xxx: File name too long"),
        (("transcribe", HELLO, "-o", "/no/such/", "--beside"), {}, "--beside: expected no --output"),
        (("transcribe", "-", "--beside"), {}, "--beside: expected files"),
        (("transcribe", HELLO, "--words"), {}, "--words: expected --format tsv or json"),
        (("transcribe", HELLO, "--max-line-width=30"), {}, "--max-line-width: expected --format srt or vtt"),
        (("transcribe", HELLO, "--prompt", "caf\udce9"), {}, r"--prompt: expected text in UTF-8, got 'caf\udce9'"),
        (("transcribe", HELLO, "--language", "xx"), {}, "language: expected"),
        (("demo", "--url", "ws://127.0.0.1:9"), {}, "127.0.0.1:9"),
        (("demo", "--api-key", "k1"), {}, "--api-key: expected --url with it"),
    ],
)
def test_a_mistake_of_the_user_is_explained_in_one_line(
    prepared: PreparedTutti, arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    """The command exits with an error code and one sentence, without a traceback."""
    # A command that starts other processes is one itself.
    run = tutti if arguments[-2:] == ("--gateways", "1") else prepared
    done = run(*arguments, **environment)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_of_a_newer_release_is_explained(prepared: PreparedTutti, tmp_path: Path) -> None:
    """Before the model is loaded."""
    with closing(sqlite3.connect(tmp_path / "tutti.db")) as database:
        database.execute("CREATE TABLE tutti_migrations (version_num VARCHAR)")
        database.execute("INSERT INTO tutti_migrations VALUES ('9999')")
        database.commit()
    done = prepared("serve", "--jobs", "--port", "0", TUTTI_DATA_FOLDER=str(tmp_path))
    assert done.returncode != 0
    loading, error = done.stderr.splitlines()
    assert "loading" in loading and "or older, got version 9999 of a newer release" in error


@pytest.mark.parametrize("gateways", ["0", "2"])
def test_a_port_in_use_is_explained(prepared: PreparedTutti, gateways: str) -> None:
    """Also for gateways, which share a port, and if the other program allows to share it."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        run = tutti if gateways == "2" else prepared
        done = run("serve", "--port", str(taken.getsockname()[1]), "--gateways", gateways)
    assert done.returncode != 0
    assert "another --port" in done.stderr


def test_a_file_is_transcribed_without_a_server(prepared: PreparedTutti) -> None:
    """The output has the text only, so that it can be piped."""
    done = prepared("transcribe", HELLO, "--language", "en", "--context", "--format", "text")
    assert done.stderr == ""
    assert done.stdout == "Hello everyone, and welcome to the morning meeting.\n"


def test_recordings_have_their_transcripts_beside_them(prepared: PreparedTutti, tmp_path: Path) -> None:
    """Those of folders in the folder, too. One that fails is reported, and the exit status tells it."""
    shutil.copytree(AUDIO, tmp_path / "talks" / "more", ignore=shutil.ignore_patterns("[!ht]*"))
    shutil.copy(HELLO, tmp_path / "hello.flac")
    (tmp_path / "talks" / "broken.mp3").write_bytes(b"no audio")
    names = [str(tmp_path / name) for name in ("hello.flac", "talks", "missing.mp3")]
    done = prepared("transcribe", *names, "--beside", "--format", "srt", "--language", "en")
    assert done.returncode == 1
    assert done.stdout == ""
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == [names[2], f"{names[1]}/broken.mp3"]
    written = sorted(tmp_path.rglob("*.srt"))
    assert written == [tmp_path / name for name in ("hello.srt", "talks/more/hello.srt", "talks/more/train.srt")]
    assert "welcome\nto the morning meeting." in written[0].read_text()
    assert written[1].read_text() == written[0].read_text()


def models_into(output: int) -> subprocess.CompletedProcess[str]:
    """What becomes of `tutti models` with this file as its output."""
    command = [sys.executable, "-m", "tutti_server.app", "models"]
    return subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def test_a_full_disk_is_explained() -> None:
    with FULL_DISK.open("w") as full:
        done = models_into(full.fileno())
    assert done.returncode == 1
    assert done.stderr == "Error: cannot write the output: No space left on device\n"


def test_a_reader_that_has_closed_its_pipe_ends_a_command_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = models_into(writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_an_output_on_a_full_disk_is_explained(prepared: PreparedTutti) -> None:
    done = prepared("transcribe", HELLO, "-o", str(FULL_DISK))
    assert done.returncode == 1
    assert done.stderr == f"Error: {HELLO}: cannot write {FULL_DISK}: No space left on device\n"


def test_the_demo_shows_captions_and_figures(prepared: PreparedTutti) -> None:
    """The recording is streamed over a real socket; its segments and a summary line are shown."""
    done = prepared("demo", "--file", str(AUDIO / "hello.flac"))
    assert done.returncode == 0, done.stderr
    assert "everyone, and welcome to the morning meeting." in done.stdout
    assert "s of audio, 8 words · first text" in done.stdout
