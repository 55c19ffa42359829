"""The command line prints the transcript to the output, and everything else to the error stream."""

import io
import json
import sys

import pytest

from app.cli.terminal import banner, print_transcript
from app.files.transcription import TranscriptionOptions
from app.service.settings import Settings
from app.session.session import SessionConfig
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.app.files.test_transcription import BusyTranscriber, conversation
from tests.app.media.test_file_decoder import encode
from tests.fakes import MODEL, LevelDetector, said

WORDS, SAMPLES = conversation(4)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def show(content: bytes, output: str = "text", carries_context: bool = False) -> BusyTranscriber:
    transcriber = BusyTranscriber()
    config = SessionConfig(make_detector=LevelDetector)
    options = TranscriptionOptions(carries_context=carries_context)
    await print_transcript(transcriber, io.BytesIO(content), output, config, options)
    return transcriber


async def test_only_the_text_is_printed_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    await show(wav(SAMPLES))
    assert capsys.readouterr() == (said(WORDS) + "\n", "")


async def test_a_terminal_shows_progress_and_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bar reaches the end of the recording; text for a pipe is not printed above it."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stderr", terminal)
    await show(wav(SAMPLES), "segments")
    shown = terminal.getvalue()
    assert "Transcribing" in shown
    *_, last = shown.splitlines()
    assert "01:22.40 of audio in 00:0" in last and "x real time" in last
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4
    assert printed[0].startswith("00:00.00 – 00:19.5")
    assert "w7" not in shown


async def test_a_file_that_is_shorter_than_its_header_says_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Its text is printed as well."""
    content = encode("mp3", "libmp3lame", 16_000, SAMPLES)
    await show(content)
    assert capsys.readouterr().err == ""
    await show(content[: len(content) // 2], "json")
    out, err = capsys.readouterr()
    assert json.loads(out)["audio_s"] == pytest.approx(41.0, abs=1.0)
    assert err.startswith("The audio ends at 00:4") and "lasts 01:22" in err


@pytest.mark.parametrize(("output", "n_lines"), [("srt", 4), ("vtt", 3)])
async def test_subtitles_are_printed_unchanged(output: str, n_lines: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line belongs to a cue, and the cues have all words."""
    await show(wav(SAMPLES), output)
    head, *made, end = capsys.readouterr().out.removeprefix("WEBVTT\n\n").split("\n\n")
    assert [len(cue.splitlines()) + 1 for cue in (head, *made)] == [n_lines] * (len(made) + 1)
    assert end == ""
    assert " ".join(cue.splitlines()[-1] for cue in (head, *made)) == said(WORDS)


@pytest.mark.parametrize(
    ("host", "address"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("192.168.1.5", "192.168.1.5")]
)
def test_a_server_shows_an_address_that_can_be_opened(host: str, address: str) -> None:
    """No browser opens the address that stands for all addresses of a machine."""
    shown = banner(Settings(host=host, allow_anyone=True), MODEL, 8000)
    assert f"http://{address}:8000/\n" in shown
    assert ("listens on every address" in shown) == (host in ("0.0.0.0", "::"))


@pytest.mark.parametrize("carries_context", [False, True])
async def test_the_model_sees_the_text_before_only_with_context(carries_context: bool) -> None:
    transcriber = await show(wav(SAMPLES), carries_context=carries_context)
    assert any(transcriber.shown) == carries_context
