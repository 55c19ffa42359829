"""The command line, as a program of its own against a scripted server."""

import asyncio
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.clients.python.client_fakes import (
    INTERIM,
    SEGMENT,
    SPEECH,
    STOPPED,
    UTTERANCE,
    Peer,
    each,
    make_started,
    play,
    serve_answer,
    serve_nothing,
    serve_script,
)
from tests.clients.python.test_client_audio import make_wav
from tutti.__main__ import main
from tutti.errors import AudioError
from tutti.recording import find_recorder, record

Tutti = Callable[..., Coroutine[Any, Any, asyncio.subprocess.Process]]


@pytest.fixture
async def tutti() -> AsyncIterator[Tutti]:
    """Starts `python -m tutti` with pipes, and kills the processes that are left after the test."""
    processes: list[asyncio.subprocess.Process] = []

    pipe = asyncio.subprocess.PIPE

    async def start(
        *args: str, stdin: int = pipe, stdout: int = pipe, stderr: int = pipe, **env: str
    ) -> asyncio.subprocess.Process:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tutti", *args),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=inherited | env,
            # A shell lets the programs that it runs in the background ignore Ctrl-C, and their children inherit this.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
def wav(tmp_path: Path) -> str:
    path = tmp_path / "speech.wav"
    path.write_bytes(make_wav(1, 16, bytes(16000)))
    return str(path)


async def answer(peer: Peer) -> None:
    await peer.receive_until("start")
    warning = {"code": "unknown_key", "message": "look out"}
    await peer.send(make_started() | {"warnings": [warning]})
    await peer.receive_until("stop")
    await peer.send(SPEECH, INTERIM, {"type": "lag", "behind_s": 2}, SEGMENT, UTTERANCE, STOPPED)


async def test_a_file_becomes_captions(tutti: Tutti, tmp_path: Path) -> None:
    """A file of any format is uploaded. A pipe gets only the final lines, and no progress.

    The key may come from a file, which ends in a line break.
    """
    (tmp_path / "talk.flac").write_bytes(b"fLaC")
    async with serve_answer() as server:
        talk = str(tmp_path / "talk.flac")
        process = await tutti(talk, "--url", server.url, "--language", "en", TUTTI_API_KEY=" k2\n")
        out, err = await process.communicate()
    assert (process.returncode, out.decode(), err) == (0, "[    0.12 →     1.50] Hello there.\n", b"")
    (request,) = server.requests
    assert b"Bearer k2\r\n" in request and b"fLaC" in request and b"en\r\n" in request


async def shown_on_a_terminal(tutti: Tutti, stream: str, *args: str, **env: str) -> str:
    """What a program that ends well writes to this stream, which is a terminal."""
    ours, theirs = os.openpty()
    process = await tutti(*args, **{stream: theirs}, **env)
    os.close(theirs)
    await process.communicate()
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    assert process.returncode == 0
    return shown


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals there")
async def test_a_terminal_shows_the_progress_of_a_file(tutti: Tutti, wav: str) -> None:
    """On standard error, and the line is gone before a caption is written."""
    async with serve_answer() as server:
        shown = await shown_on_a_terminal(tutti, "stderr", wav, "--url", server.url)
    assert "\r\x1b[2Ksent; waiting for the first text" in shown
    assert "\r\x1b[2Ktranscribed 0:00:01 of 0:00:00" in shown
    assert shown.endswith("\r\x1b[2K")


async def test_ctrl_c_during_an_upload_ends_it(tutti: Tutti, wav: str) -> None:
    """Without a traceback."""
    async with serve_nothing() as (address, has_come):
        process = await tutti(wav, "--url", f"http://{address}")
        await has_come.wait()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"")


async def test_a_file_is_streamed_at_a_given_speed(tutti: Tutti, wav: str) -> None:
    """Remarks go to standard error. A file does not wait for its text, so nothing is behind."""
    async with serve_script(answer) as server:
        process = await tutti(wav, "--url", server.url, "--language", "en", "--speed", "100", TUTTI_API_KEY="k2")
        out, err = await process.communicate()
    assert (process.returncode, out.decode()) == (0, "[    0.12 →     1.50] Hello there.\n")
    assert err.decode().splitlines() == ["tutti: look out"]
    assert b"".join(server.peer.audio) == bytes(16000)
    assert server.peer.messages[0]["language"] == "en"
    # A pipe shows no interims, so the session has none.
    assert server.peer.messages[0]["interim"] is False
    assert server.requests[0].headers["Authorization"] == "Bearer k2"


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals there")
async def test_a_terminal_shows_the_interim_line(tutti: Tutti, wav: str) -> None:
    """On a terminal the session has interims, and they are drawn with a dimmed tail."""
    async with serve_script(answer) as server:
        options = ("--url", server.url, "--speed", "100")
        shown = await shown_on_a_terminal(tutti, "stdout", wav, *options, COLUMNS="60")
    assert "\r\x1b[2KHello\x1b[2m th\x1b[0m" in shown
    assert "\r\x1b[2K[    0.12 →     1.50] Hello there.\r\n" in shown
    assert server.peer.messages[0]["interim"] is True


async def test_a_lost_connection_is_shown_and_mended(tutti: Tutti, wav: str) -> None:
    """The captions go on; remarks say why they waited."""
    async with serve_script(each(play(close=1011, reason="oh no"), answer)) as server:
        process = await tutti(wav, "--url", server.url, "--speed", "100")
        out, err = await process.communicate()
    assert (process.returncode, out.decode()) == (0, "[    0.12 →     1.50] Hello there.\n")
    lost, again = err.decode().splitlines()
    assert lost.startswith("tutti: connection lost (the connection was lost (close code 1011, oh no)")
    assert again == "tutti: connected again"


async def test_letters_the_output_lacks_do_not_end_it(tutti: Tutti, wav: str) -> None:
    """Output in ASCII has question marks."""
    async with serve_answer() as server:
        process = await tutti(wav, "--url", server.url, PYTHONIOENCODING="ascii")
        out, _ = await process.communicate()
    assert (process.returncode, out) == (0, b"[    0.12 ?     1.50] Hello there.\n")


@pytest.mark.parametrize(
    ("serve", "options", "kinds"),
    [
        (serve_answer, (), ["segment", "utterance", "stopped"]),
        (
            lambda: serve_script(answer),
            ("--speed", "100"),
            ["started", "speech_started", "interim", "lag", "segment", "utterance", "stopped"],
        ),
    ],
    ids=["upload", "live"],
)
async def test_events_become_lines_of_json(
    tutti: Tutti, wav: str, serve: Callable[[], Any], options: tuple[str, ...], kinds: list[str]
) -> None:
    """`--json` writes every event as on the wire: those of a session, `started` first, and those of an upload."""
    async with serve() as server:
        process = await tutti(wav, "--url", server.url, "--json", *options)
        out, _ = await process.communicate()
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["type"] for event in events] == kinds
    assert SEGMENT in events
    assert process.returncode == 0


@pytest.mark.parametrize("kind", ["pipe", "file"])
async def test_raw_audio_from_standard_input(tutti: Tutti, tmp_path: Path, kind: str) -> None:
    """`-` reads a pipe or a file in the format of the options."""
    audio = bytes(range(256)) * 50
    (tmp_path / "raw").write_bytes(audio)
    args = ("-", "--encoding", "mulaw", "--rate", "8000", "--channels", "2")
    async with serve_script(answer) as server:
        if kind == "pipe":
            process = await tutti(*args, "--url", server.url)
            _, err = await process.communicate(audio)
        else:
            stdin = os.open(tmp_path / "raw", os.O_RDONLY)
            process = await tutti(*args, "--url", server.url, stdin=stdin)
            os.close(stdin)
            _, err = await process.communicate()
    assert process.returncode == 0, err
    assert b"".join(server.peer.audio) == audio
    assert server.peer.messages[0]["audio"] == {"encoding": "mulaw", "sample_rate": 8000, "channels": 2}


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be sent Ctrl-C there")
async def test_ctrl_c_waits_for_the_last_finals(tutti: Tutti) -> None:
    """The first Ctrl-C ends the audio; the last finals are still written."""
    async with serve_script(answer) as server:
        process = await tutti("-", "--url", server.url)
        assert process.stdin is not None and process.stderr is not None
        # Written once the session has started, when Ctrl-C is attended to.
        assert await process.stderr.readline() == b"tutti: look out\n"
        process.stdin.write(bytes(3200))
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert (await process.stdout.read()).decode() == "[    0.12 →     1.50] Hello there.\n"
        assert await process.wait() == 0
        assert process.stdin is not None
        process.stdin.close()
    assert server.peer.messages[-1] == {"type": "stop"}


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be sent Ctrl-C there")
async def test_a_second_ctrl_c_does_not_wait(tutti: Tutti) -> None:
    """The second Ctrl-C ends the program although the server has not finished."""

    async def forget(peer: Peer) -> None:
        await peer.receive_until("start")
        await peer.send(make_started() | {"warnings": [{"code": "a", "message": "b"}]})
        await peer.receive_until("stop")
        process.send_signal(signal.SIGINT)
        await peer.socket.wait_closed()

    async with serve_script(forget) as server:
        process = await tutti("-", "--url", server.url)
        assert process.stderr is not None
        await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        assert process.stdin is not None
        process.stdin.close()


async def test_a_failure_is_one_line_that_says_what_to_do(tutti: Tutti, wav: str) -> None:
    """Exit code 1, no traceback."""
    async with serve_answer(head="401 Unauthorized") as server:
        process = await tutti(wav, "--url", server.url)
        _, err = await process.communicate()
    assert process.returncode == 1
    assert err.decode().count("\n") == 1
    assert "TUTTI_API_KEY" in err.decode()


@pytest.mark.parametrize("options", [(), ("--realtime",)])
async def test_an_unknown_certificate_is_one_to_name(tutti: Tutti, wav: str, options: tuple[str, ...]) -> None:
    """The server is there, so nothing says to start one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with serve_script(answer, ssl=context) as server:
        process = await tutti(wav, "--url", server.url.replace("ws", "wss", 1), *options)
        _, err = await process.communicate()
    assert process.returncode == 1
    assert b"--ca-file" in err and b"tutti serve" not in err


@pytest.mark.parametrize(
    ("args", "status", "expected"),
    [
        (["WAV", "--url", "ws://127.0.0.1:1"], 1, "tutti serve"),
        (["missing.wav"], 2, "missing.wav"),
        (["./missing.wav"], 2, "missing.wav"),
        ([__file__, "--realtime"], 2, "not a WAV file"),
        ([str(Path(__file__).parent)], 2, "directory"),
        (["WAV", "--url", "localhost:8000"], 2, "expected ws://"),
        (["mic", "--realtime"], 2, "not for mic"),
        (["WAV", "--rate", "8000"], 2, "standard input"),
        (["WAV", "--speed", "0"], 2, "above 0"),
        (["WAV", "--prompt", os.fsdecode(b"\xff")], 2, "--prompt"),
        ([], 2, "FILE"),
        (["WAV", "--url", "wss://127.0.0.1:1", "--ca-file", "missing.pem"], 2, "missing.pem"),
        (["WAV", "--url", "ws://127.0.0.1:1", "--ca-file", "any.pem"], 2, "--ca-file is for wss:// and"),
        (["-", "--rate", "0"], 2, "above 0"),
    ],
)
def test_wrong_usage_is_told_apart(
    wav: str, args: list[str], status: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong arguments give exit code 2; the error says what was wrong, without a traceback."""
    try:
        ended_with: int | str | None = main([wav if arg == "WAV" else arg for arg in args])
    except SystemExit as error:
        ended_with = error.code
    said = capsys.readouterr().err
    assert ended_with == status
    assert expected in said and "Traceback" not in said


async def test_a_wav_file_on_standard_input_is_not_taken_for_raw_audio(tutti: Tutti) -> None:
    """The error tells the user to give the file by its name."""
    async with serve_script(answer) as server:
        process = await tutti("-", "--url", server.url)
        _, err = await process.communicate(b"RIFF\x24\x00\x00\x00WAVEfmt ")
    assert process.returncode == 2
    assert b"give it by its name" in err


def test_a_recorder_is_looked_for_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first program that is installed is used; without any, the error names what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AudioError, match="install"):
        find_recorder("linux")
    for name in ("ffmpeg", "rec", "arecord"):
        (tmp_path / name).touch(mode=0o755)
        assert find_recorder("linux")[0] == name


async def test_a_recorder_is_read_and_ended() -> None:
    """The output of the program is the audio; closing the generator ends the program."""
    endless = "import sys\nwhile True: sys.stdout.buffer.write(bytes(3200))"
    audio = record([sys.executable, "-c", endless])
    assert await anext(audio)
    await audio.aclose()


async def test_a_recorder_may_write_any_number_of_warnings() -> None:
    """Those of a night of overruns do not stop the audio."""
    warning = "import sys; sys.stderr.write('overrun!!!\\n' * 40_000); sys.stdout.buffer.write(bytes(10))"
    async with asyncio.timeout(30):
        assert [chunk async for chunk in record([sys.executable, "-c", warning])] == [bytes(10)]


async def test_a_recorder_that_fails_is_quoted() -> None:
    """The error has the message of the program."""
    failing = "import sys; sys.stdout.buffer.write(bytes(10)); sys.exit('no such device')"
    audio = record([sys.executable, "-c", failing])
    assert await anext(audio) == bytes(10)
    with pytest.raises(AudioError, match="status 1: no such device"):
        await anext(audio)
    with pytest.raises(AudioError, match="nonexistent"):
        await anext(record(["/nonexistent/recorder"]))
