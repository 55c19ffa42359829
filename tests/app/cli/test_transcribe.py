"""`tutti transcribe` prints transcripts to the output as they become ready, and everything else to the error stream."""

import asyncio
import errno
import io
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from tests.app.dialects.openai.test_files_endpoint import wav
from tests.app.files.test_transcription import BusyTranscriber
from tests.app.media.test_file_decoder import encode
from tests.fakes import FakeTranscriber, LevelDetector, said, silence, speech
from tests.made_files import Track, damaged, made_file
from tutti_server.app.cli.recordings import Destination, Recording, find_recordings
from tutti_server.app.cli.transcribe import Input, Job, all_tracks, prepare, transcribe_all
from tutti_server.app.errors import SessionError
from tutti_server.app.files.formats import Layout
from tutti_server.app.files.transcription_options import TranscriptionOptions
from tutti_server.app.session.core.options import SessionConfig

TURNS = [range(10 * turn, 10 * turn + 20) for turn in range(4)]
WORDS = [number for turn in TURNS for number in turn]
SAMPLES = np.concatenate([part for turn in TURNS for part in (speech(turn), silence(2.5))])
"""Four utterances: 32.4 s."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def job(format: str = "txt", options: TranscriptionOptions | None = None, **layout: Any) -> Job:
    return Job(
        config=SessionConfig(make_detector=LevelDetector),
        options=options or TranscriptionOptions(),
        layout=Layout(format=format, **layout),
    )


def recordings(folder: Path, *contents: bytes) -> list[Recording]:
    """Files named a, b, c … with these contents."""
    paths = [folder / name for name, _ in zip("abcdefghijklmnop", contents, strict=False)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return [Recording(path.name, path, Path(path.name)) for path in paths]


def inputs(folder: Path, *contents: bytes, outputs: Iterable[Path] = ()) -> list[Input]:
    found = recordings(folder, *contents)
    ready, unreadable = prepare(found, list(outputs) or [None] * len(found))
    assert unreadable == []
    return ready


def texts(folder: Path) -> dict[str, str]:
    """What was written into a folder, besides the recordings."""
    return {path.name: path.read_text() for path in folder.iterdir() if len(path.name) > 1}


Transcribed = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def transcribed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Transcribed:
    """Does a job for recordings with these contents. Returns the exit status, the output and the errors."""

    async def transcribe(each: Job, *contents: bytes) -> tuple[int, str, str]:
        status = await transcribe_all(BusyTranscriber(), inputs(tmp_path, *contents), each)
        return status, *capsys.readouterr()

    return transcribe


async def test_only_the_text_is_printed_without_a_terminal(transcribed: Transcribed) -> None:
    """Each utterance has a line."""
    status, out, err = await transcribed(job(), wav(SAMPLES))
    assert len(out.splitlines()) >= 4
    assert (status, " ".join(out.splitlines()), err) == (0, said(WORDS), "")


async def test_a_terminal_shows_progress_and_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The model comes first, and the bar reaches the end of the recording. Text for a pipe is not printed above it."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stderr", terminal)
    await transcribe_all(BusyTranscriber(), inputs(tmp_path, wav(SAMPLES)), job("segments"))
    shown = terminal.getvalue()
    assert "Transcribing" in shown
    first, *_, last = shown.splitlines()
    assert f"{FakeTranscriber.info.name}: {FakeTranscriber.info.dtype} on " in first and "beam" in first
    assert "00:32.40 of audio in 00:0" in last and "x real time" in last
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4
    assert printed[0].startswith("00:00.00 – 00:05.5")
    assert "w7" not in shown


async def test_a_file_that_is_shorter_than_its_header_says_is_reported(transcribed: Transcribed) -> None:
    """Its text is printed as well."""
    content = encode("mp3", "libmp3lame", 16_000, SAMPLES)
    assert (await transcribed(job(), content))[2] == ""
    status, out, err = await transcribed(job("json"), content[: len(content) // 2])
    assert status == 0 and json.loads(out)["audio_s"] == pytest.approx(16.2, abs=1.0)
    assert err.startswith("a: expected 32.") and "is it cut off?" in err


@pytest.mark.parametrize("is_pipe", [False, True])
async def test_an_empty_recording_is_one_line(
    is_pipe: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty file is refused before the model is loaded, an empty pipe when it is read."""
    path = tmp_path / "empty.mp3"
    path.touch()
    if not is_pipe:
        found = [Recording(path.name, path, Path(path.name))]
        assert prepare(found, [None]) == ([], ["empty.mp3: expected audio, got an empty file"])
        assert capfd.readouterr() == ("", "")
        return
    with path.open("rb") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert (
            await transcribe_all(FakeTranscriber(), [Input(Recording("-", None, Path("stdin")), None, None)], job())
            == 1
        )
    assert capfd.readouterr().err == "Error: -: expected audio, got an empty file\n"


async def test_each_track_is_a_recording_of_its_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A file is written for each, and what cannot be searched for tracks is named."""
    tracks = [Track(samples=silence(3.0), language="eng"), Track(samples=SAMPLES)]
    path = tmp_path / "film.mkv"
    path.write_bytes(made_file("matroska", "pcm_s16le", 16_000, tracks))
    broken = tmp_path / "broken.mkv"
    broken.write_bytes(b"none")
    found, problems = all_tracks(find_recordings([str(path), str(broken), "-"])[0])
    assert [each.name.removeprefix(str(path)) for each in found] == [", track 0 (eng)", ", track 1"]
    assert [each.partition(": ")[2][:24] for each in problems] == [
        "expected audio in a form",
        "expected a file with --t",
    ]
    layout = Layout(format="txt")
    for destination in (Destination(is_beside=True), Destination(f"{tmp_path}/")):
        outputs = destination.paths(found, layout)
        assert outputs == [tmp_path / "film.track-0.txt", tmp_path / "film.track-1.txt"]
        ready, unreadable = prepare(found, outputs)
        assert unreadable == []
        assert await transcribe_all(BusyTranscriber(), ready, job()) == 0
        texts = [output.read_text() for output in outputs if output]
        assert (texts[0], " ".join(texts[1].split())) == ("", said(WORDS))
    assert capsys.readouterr().err == ""


async def test_a_track_is_chosen_or_the_others_are_named(transcribed: Transcribed, tmp_path: Path) -> None:
    tracks = [Track(samples=silence(3.0), language="eng"), Track(samples=SAMPLES, language="fre")]
    content = made_file("matroska", "pcm_s16le", 16_000, tracks)
    assert (await transcribed(job(), content))[2].endswith("0 (eng) is transcribed, and not 1 (fre)\n")
    _, out, err = await transcribed(replace(job(), track="fr"), content)
    assert (" ".join(out.splitlines()), err) == (said(WORDS), "")
    assert prepare(recordings(tmp_path, content), [None], "2")[1] == [
        "a: track: expected one of 0 (eng), 1 (fre), got '2'"
    ]


async def test_times_are_those_of_the_file_and_lost_audio_is_named(transcribed: Transcribed) -> None:
    """The track begins 10 s in; a stretch of the file is damaged."""
    track = Track(samples=SAMPLES, offset_s=10.0)
    content = damaged(made_file("matroska", "pcm_s16le", 16_000, [track]), 0.5, 0.1)
    status, out, err = await transcribed(job("json"), content)
    told = json.loads(out)
    assert err.startswith("a: expected whole audio, got damaged data from ") and len(err.splitlines()) == 1
    assert told["audio_s"] == pytest.approx(len(SAMPLES) / 16_000 + 10.0, abs=0.1)
    assert status == 0 and told["segments"][0]["start_s"] >= 10.0
    assert [each["code"] for each in told["warnings"]] == ["lost_audio"]
    assert len(told["uncovered"]) == 1


async def test_a_film_with_silent_credits_is_not_cut_off(transcribed: Transcribed) -> None:
    sound = Track(samples=np.zeros(5 * 16_000, np.float32))
    content = made_file("mp4", "aac", 16_000, [sound], picture_s=30)
    assert await transcribed(job(), content) == (0, "", "")


async def test_the_channels_of_a_sound_that_begins_late_are_counted(transcribed: Transcribed) -> None:
    """FFmpeg looks for their number in the first seconds."""
    sound = Track(samples=SAMPLES, offset_s=25.0)
    content = made_file("mpegts", "aac", 48_000, [sound], picture_s=30, layout="stereo")
    status, out, _ = await transcribed(job(has_channels=True), content)
    assert status == 0 and {line[:9] for line in out.splitlines()} == {"channel 0", "channel 1"}


@pytest.mark.parametrize(("output", "n_lines"), [("srt", 4), ("vtt", 3)])
async def test_subtitles_are_printed_unchanged(output: str, n_lines: int, transcribed: Transcribed) -> None:
    """Each line belongs to a cue of one or two, and the cues have all words."""
    _, out, _ = await transcribed(job(output), wav(SAMPLES))
    head, *made, end = out.removeprefix("WEBVTT\n\n").split("\n\n")
    assert {len(cue.splitlines()) + 1 for cue in (head, *made)} <= {n_lines, n_lines + 1}
    assert end == ""
    assert " ".join(line for cue in (head, *made) for line in cue.splitlines()[n_lines - 2 :]) == said(WORDS)


async def test_several_recordings_share_the_engine_and_keep_their_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each has its name above its text."""
    transcriber = BusyTranscriber()
    turns = [[number, number + 10, number + 20] for number in range(6)]
    # The first one is by far the longest, so it ends last.
    contents = [wav(SAMPLES), *(wav(speech(turn)) for turn in turns)]
    assert await transcribe_all(transcriber, inputs(tmp_path, *contents), job()) == 0
    out, err = capsys.readouterr()
    names = [line for line in out.splitlines() if line.startswith("==>")]
    assert names == [f"==> {name} <==" for name in "abcdefg"]
    assert " ".join(line for line in out.splitlines() if line and line not in names) == " ".join(
        said(numbers) for numbers in [WORDS, *turns]
    )
    assert err == ""
    assert transcriber.most_open > 1


async def test_a_recording_that_fails_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is reported with its name; no file is left of it."""
    ready = inputs(tmp_path, wav(speech([1])), wav(speech([2])), outputs=[tmp_path / "a.txt", tmp_path / "b.txt"])
    (tmp_path / "a").write_bytes(b"no audio any more")
    assert await transcribe_all(BusyTranscriber(), ready, job()) == 1
    assert texts(tmp_path) == {"b.txt": "w2\n"}
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: a: expected audio in a format that FFmpeg decodes")


class Unplugged(Recording):
    """A recording whose disk is gone when half of it has been read."""

    @contextmanager
    def opened(self, *, is_searched: bool = False) -> Iterator[BinaryIO]:
        content = wav(SAMPLES)

        class File(io.BytesIO):
            def read(self, n: int | None = -1, /) -> bytes:
                if self.tell() > len(content) // 2:
                    raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
                return super().read(n)

        yield File(content)


@pytest.mark.parametrize("has_files", [True, False])
async def test_a_disk_that_goes_away_fails_its_recordings_alone(
    has_files: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is not said to be one of the output."""
    outputs = [tmp_path / "a.txt", tmp_path / "b.txt"] if has_files else []
    first, second = inputs(tmp_path, wav(SAMPLES), wav(speech([2])), outputs=outputs)
    gone = replace(first, recording=Unplugged("a", tmp_path / "a", Path("a")))
    assert await transcribe_all(BusyTranscriber(), [gone, second], job()) == 1
    out, err = capsys.readouterr()
    assert err == "Error: a: cannot be read: No such device\n"
    assert texts(tmp_path) == {"b.txt": "w2\n"} if has_files else out.endswith("\n==> b <==\nw2\n")


@pytest.mark.parametrize("is_beside", [True, False])
async def test_a_name_that_is_not_utf_8_is_written_as_far_as_it_is(
    is_beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the recordings after it are transcribed."""
    for name in (b"caf\xe9.wav", b"d.wav"):
        (tmp_path / os.fsdecode(name)).write_bytes(wav(speech([1])))
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="utf-8", write_through=True))
    each = job("json") if is_beside else job()
    found, _ = find_recordings([str(tmp_path), str(tmp_path / os.fsdecode(b"caf\xe9.wav"))])
    assert [recording.name for recording in found] == [
        f"{tmp_path}/{name}.wav" for name in ("caf\ufffd", "d", "caf\ufffd")
    ]
    ready, _ = prepare(found[:2], Destination(is_beside=is_beside).paths(found[:2], each.layout))
    assert await transcribe_all(BusyTranscriber(), ready, each) == 0
    if is_beside:
        written = [(tmp_path / os.fsdecode(name)).read_text() for name in (b"caf\xe9.json", b"d.json")]
        assert [json.loads(text)["text"] for text in written] == ["w1", "w1"]
    else:
        assert [line for line in shown.getvalue().decode().splitlines() if line and line != "w1"] == [
            f"==> {recording.name} <==" for recording in found[:2]
        ]


async def test_an_option_that_the_model_does_not_support_is_one_error_for_all(tmp_path: Path) -> None:
    options = TranscriptionOptions(language="xx")
    with pytest.raises(ExceptionGroup) as raised:
        await transcribe_all(
            BusyTranscriber(), inputs(tmp_path, wav(speech([1])), wav(speech([2]))), job(options=options)
        )
    (error,) = raised.value.exceptions[:1]
    assert isinstance(error, SessionError) and "language: expected" in str(error)


def two_sides() -> bytes:
    """A call: the left side speaks, then both, then the right side."""
    left = np.concatenate((speech([1, 2]), silence(2), speech([3, 4]), silence(6)))
    right = np.concatenate((silence(2), speech([5, 6]), silence(3), speech([7, 8]), silence(3)))
    n_samples = min(len(left), len(right))
    return wav(np.stack((left[:n_samples], right[:n_samples]), axis=1), n_channels=2)


IN_ORDER = ["channel 0: w1 w2", "channel 1: w5 w6", "channel 0: w3 w4", "channel 1: w7 w8"]


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        ("txt", IN_ORDER),
        ("srt", IN_ORDER),
        ("vtt", ["<v channel 0>w1 w2", "<v channel 1>w5 w6", "<v channel 0>w3 w4", "<v channel 1>w7 w8"]),
    ],
)
async def test_each_channel_has_its_own_text(format: str, expected: list[str], transcribed: Transcribed) -> None:
    """In the order of time, with the channel's number."""
    status, out, _ = await transcribed(job(format, has_channels=True), two_sides())
    assert status == 0
    assert [line for line in out.splitlines() if "w" in line.lower() and "WEBVTT" not in line] == expected


async def test_json_has_channels_and_words(transcribed: Transcribed) -> None:
    _, out, _ = await transcribed(job("json", has_channels=True, has_words=True), two_sides())
    body: dict[str, Any] = json.loads(out)
    assert (body["file"], body["text"]) == ("a", "w1 w2 w5 w6 w3 w4 w7 w8")
    assert [segment["channel"] for segment in body["segments"]] == [0, 1, 0, 1]
    assert [word["text"] for segment in body["segments"] for word in segment["words"]] == body["text"].split()
    assert all("start_s" in word for segment in body["segments"] for word in segment["words"])


@pytest.mark.parametrize(
    ("layout", "heading", "n_rows"),
    [
        ({}, "start\tend\ttext", 1),
        ({"has_words": True}, "start\tend\ttext", 3),
        ({"has_channels": True}, "start\tend\tchannel\ttext", 1),
    ],
)
async def test_a_table_has_a_row_for_each_segment_or_word(
    layout: dict[str, bool], heading: str, n_rows: int, transcribed: Transcribed
) -> None:
    _, out, _ = await transcribed(job("tsv", None, **layout), wav(speech([1, 2, 3])))
    first, *rows = out.splitlines()
    assert (first, len(rows)) == (heading, n_rows)
    assert rows[0].split("\t")[0].isdigit()


def piped(folder: Path) -> tuple[Path, list[Input]]:
    """A pipe, and the recording that comes through it."""
    os.mkfifo(pipe := folder / "pipe")
    return pipe, [Input(Recording("pipe", pipe, Path("pipe")), None, None)]


async def test_text_comes_before_the_recording_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe that is not at its end has had its first text transcribed."""
    pipe, ready = piped(tmp_path)
    is_printed = threading.Event()
    content = wav(np.concatenate([SAMPLES] * 2))

    def feed() -> None:
        with pipe.open("wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            is_printed.wait()
            file.write(content[len(content) // 2 :])

    feeder = asyncio.create_task(asyncio.to_thread(feed))
    task = asyncio.create_task(transcribe_all(BusyTranscriber(), ready, job()))
    printed = ""
    try:
        while "\n" not in printed:
            await asyncio.sleep(0)
            printed += capsys.readouterr().out
    finally:
        # Without the rest both the thread and the transcription would wait for ever.
        is_printed.set()
    assert await task == 0
    await feeder
    assert " ".join((printed + capsys.readouterr().out).split()) == said(WORDS * 2)


@pytest.mark.parametrize(
    ("container", "codec", "has_channels"),
    [
        ("mp4", "aac", False),
        ("wav", "pcm_s16le", True),
    ],
)
async def test_a_pipe_is_transcribed(
    container: str, codec: str, has_channels: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also a file with its index at the end, and one whose channels must be known before."""
    pipe, ready = piped(tmp_path)
    feeder = asyncio.create_task(asyncio.to_thread(pipe.write_bytes, encode(container, codec, 16_000, SAMPLES)))
    assert await transcribe_all(BusyTranscriber(), ready, job(has_channels=has_channels)) == 0
    await feeder
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("channel 0: " if has_channels else "")
    assert len(out.splitlines()) >= 4
