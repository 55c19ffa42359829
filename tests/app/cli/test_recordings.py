"""Which files a command transcribes, and which it writes."""

import errno
import os
from pathlib import Path
from typing import Any

import click
import pytest

from tutti_server.app.cli.recordings import Destination, Recording, find_recordings, opened_output
from tutti_server.app.files.formats import Layout


def names(folder: Path, *files: str) -> None:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()


def test_a_folder_means_the_recordings_below_it(tmp_path: Path) -> None:
    """In the order of their names; other files and hidden ones are left out."""
    names(tmp_path, "b.mp3", "a.WAV", "notes.txt", ".c.mp3", "d/e.mkv", "d/.git/f.mp3", "a.mp4.part")
    found, _ = find_recordings([str(tmp_path)])
    assert [str(each.output_name) for each in found] == ["a.WAV", "b.mp3", "d/e.mkv"]
    assert [each.path for each in found] == [tmp_path / each.output_name for each in found]


def test_a_file_that_is_named_may_have_any_suffix(tmp_path: Path) -> None:
    names(tmp_path, "talk", "x/talk.ts")
    found, _ = find_recordings([f"{tmp_path}/talk", f"{tmp_path}/x/talk.ts", "-"])
    assert [str(each.output_name) for each in found] == ["talk", "talk.ts", "stdin"]
    assert found[2].path is None


def test_names_without_a_recording_are_reported(tmp_path: Path) -> None:
    found, problems = find_recordings([f"{tmp_path}/no.mp3", str(tmp_path)])
    assert found == []
    assert problems == [
        f"{tmp_path}/no.mp3: expected a file or a folder, found none of this name",
        f"{tmp_path}: expected a folder with audio or video files, found none in it",
    ]


def test_the_standard_input_is_one_recording() -> None:
    """Two would each have read parts of it."""
    found, problems = find_recordings(["-", "-"])
    assert [each.path for each in found] == [None]
    assert problems == ["-: expected the standard input once, got it twice"]


def test_an_empty_name_is_not_the_present_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script gives one where a variable is not set."""
    names(tmp_path, "a.mp3")
    monkeypatch.chdir(tmp_path)
    assert find_recordings([""]) == ([], ["INPUT: expected a file or a folder, got an empty name"])
    found, _ = find_recordings(["a.mp3"])
    with pytest.raises(click.UsageError, match="--output: expected a file or a folder, got an empty name"):
        Destination(output="").paths(found, Layout())


def test_a_name_that_may_not_be_looked_at_is_reported_with_the_reason(tmp_path: Path) -> None:
    """The others are found nevertheless."""
    names(tmp_path, "a.mp3")
    long = "a" * 300 + ".wav"
    found, problems = find_recordings([long, f"{tmp_path}/a.mp3"])
    assert [each.path for each in found] == [tmp_path / "a.mp3"]
    assert problems == [f"{long}: File name too long"]


def test_a_folder_that_cannot_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies beside it is found; one that is named itself is not called empty."""
    names(tmp_path, "a.mp3", "private/b.mp3", "c/d.mp3")
    private, scandir = str(tmp_path / "private"), os.scandir

    def refuse(folder: str) -> Any:
        if str(folder) == private:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    found, problems = find_recordings([str(tmp_path), private])
    assert [str(each.output_name) for each in found] == ["a.mp3", "c/d.mp3"]
    assert problems == [f"{private}: Permission denied"] * 2


def test_a_pipe_in_a_folder_is_no_recording_and_a_broken_link_is_reported(tmp_path: Path) -> None:
    """A pipe without a writer would block the command for ever."""
    names(tmp_path, "a.mp3")
    os.mkfifo(tmp_path / "pipe.wav")
    (tmp_path / "link.mp3").symlink_to("a.mp3")
    (tmp_path / "lost.mp3").symlink_to("nowhere")
    found, problems = find_recordings([str(tmp_path)])
    assert [str(each.output_name) for each in found] == ["a.mp3", "link.mp3"]
    assert problems == [f"{tmp_path}/lost.mp3: No such file or directory"]


def paths(found: list[Recording], **values: object) -> list[str]:
    return [str(path) for path in Destination(**values).paths(found, Layout(format="srt"))]  # type: ignore[arg-type]


def test_transcripts_keep_the_folders_of_their_recordings(tmp_path: Path) -> None:
    """Below the output folder, or beside the recordings."""
    names(tmp_path, "a.mp3", "d/a.mp3")
    found, _ = find_recordings([str(tmp_path)])
    assert paths(found, output="out/") == ["out/a.srt", "out/d/a.srt"]
    assert paths(found, is_beside=True) == [f"{tmp_path}/a.srt", f"{tmp_path}/d/a.srt"]
    assert paths(found, output=str(tmp_path)) == [f"{tmp_path}/a.srt", f"{tmp_path}/d/a.srt"]
    assert paths(found[:1], output="out.txt") == ["out.txt"]
    assert Destination().paths(found, Layout(format="json")) == [None, None]


def test_recordings_of_one_name_keep_their_suffix(tmp_path: Path) -> None:
    names(tmp_path, "talk.mp3", "talk.mp4", "walk.mp3")
    found, _ = find_recordings([str(tmp_path)])
    assert paths(found, output="out/") == ["out/talk.mp3.srt", "out/talk.mp4.srt", "out/walk.srt"]


def test_no_recordings_need_no_files() -> None:
    assert paths([], output="out.txt") == []


@pytest.mark.parametrize("name", ["film", "film.mkv"])
def test_the_file_of_a_track_has_its_number(name: str) -> None:
    """Also where the film has one track alone, and a name without a suffix."""
    track = Recording(name, Path(name), Path(name)).of_track(0, None)
    assert Destination("out/").paths([track], Layout(format="srt")) == [Path("out/film.track-0.srt")]


def test_a_recording_is_not_overwritten_under_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is looked at once for that: two thousand recordings took half a minute."""
    names(tmp_path, *(f"{number}.mp3" for number in range(30)))
    found, _ = find_recordings([str(tmp_path)])
    looked_at: list[Path] = []
    stat = os.stat

    def look(path: Path, **options: Any) -> os.stat_result:
        looked_at.append(path)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", look)
    assert len(paths(found, is_beside=True)) == 30 and len(looked_at) <= 60
    (tmp_path / "9.srt").hardlink_to(tmp_path / "3.mp3")
    with pytest.raises(click.UsageError, match=r"expected another file than the recording, got .*/9\.srt"):
        paths(found, is_beside=True)


def test_two_recordings_are_not_written_to_one_file(tmp_path: Path) -> None:
    names(tmp_path, "a/talk.mp3", "b/talk.mp3")
    found, _ = find_recordings([f"{tmp_path}/a/talk.mp3", f"{tmp_path}/b/talk.mp3"])
    with pytest.raises(click.UsageError, match=r"two or more for out/talk\.mp3\.srt"):
        paths(found, output="out/")


def test_a_file_is_complete_or_not_there(tmp_path: Path) -> None:
    """An older one stays until the new one is complete."""
    path = tmp_path / "new" / "a.srt"
    with pytest.raises(ZeroDivisionError), opened_output(path) as file:
        file.write("half")
        raise ZeroDivisionError
    assert list(path.parent.iterdir()) == []
    path.write_text("old")
    with opened_output(path) as file:
        file.write("new")
        assert path.read_text() == "old"
    assert [(each.name, each.read_text()) for each in path.parent.iterdir()] == [("a.srt", "new")]


def test_a_link_to_an_output_stays(tmp_path: Path) -> None:
    """Such as /dev/stdout, where that is a file."""
    path, link = tmp_path / "files" / "a.srt", tmp_path / "a.srt"
    link.symlink_to(path)
    for text in ("first", "second"):
        with opened_output(link) as file:
            file.write(text)
        assert link.is_symlink() and path.read_text() == text
    assert [each.name for each in path.parent.iterdir()] == ["a.srt"]
