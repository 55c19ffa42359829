"""Transcribes every recording of a folder on a server, several at a time. Run again, it goes on where it stopped.

For talk.mp3 it writes talk.mp3.txt and talk.mp3.srt. A recording that fails is reported, and the others go on.
"""

import argparse
import asyncio
import os
import sys
from contextlib import aclosing
from pathlib import Path

import tutti

SUFFIXES = {".aac", ".flac", ".m4a", ".mkv", ".mov", ".mp3", ".mp4", ".oga", ".ogg", ".opus", ".wav", ".webm", ".wma"}
MAX_TRIES = 5
"""How often a recording is sent where the server has no room for it."""
DEFAULT_RETRY_S = 5.0
"""How long to wait where the server does not say when it will have room, in seconds."""


class Batch:
    """The recordings of a folder, and how far they have come."""

    def __init__(self, args: argparse.Namespace, todo: list[Path]) -> None:
        self.n_failed = 0
        self._args = args
        self._n_all = len(todo)
        self._n_done = 0
        self._todo = iter(todo)
        """Every worker takes its next recording from here."""

    async def work(self) -> None:
        """Transcribe recordings until there are none left."""
        for recording in self._todo:
            try:
                result = await self._transcribe(recording)
            # These would end every other recording as well.
            except (tutti.Unreachable, tutti.Unauthorized, tutti.BadOption):
                raise
            except (tutti.TuttiError, OSError) as error:
                self.n_failed += 1
                result = f"failed: {error}"
            self._n_done += 1
            line = f"[{self._n_done}/{self._n_all}] {recording.relative_to(self._args.folder)}: {result}"
            # What is not UTF-8 in a name becomes question marks.
            print(line.encode(errors="replace").decode(), flush=True)

    async def _transcribe(self, recording: Path) -> str:
        segments: list[tutti.Segment] = []
        for n_tries in range(1, MAX_TRIES + 1):
            try:
                events = tutti.transcribe_file(
                    self._args.url, recording, language=self._args.language, api_key=self._args.api_key
                )
                async with aclosing(events):
                    async for event in events:
                        if isinstance(event, tutti.Segment):
                            segments.append(event)
                        elif isinstance(event, tutti.Stopped):
                            result = f"{event.audio_s:.1f} s, {event.words} words"
                break
            except tutti.Overloaded as error:
                if n_tries == MAX_TRIES:
                    raise
                await asyncio.sleep(error.retry_after_s or DEFAULT_RETRY_S)
        text, subtitles = outputs(self._args, recording)
        text.parent.mkdir(parents=True, exist_ok=True)
        write(text, " ".join("".join(segment.text for segment in segments).split()) + "\n")
        # The subtitles come last: they are the sign that a recording is done.
        write(subtitles, tutti.to_srt(segments))
        return result


def outputs(args: argparse.Namespace, recording: Path) -> tuple[Path, Path]:
    """The files of a recording: text and subtitles."""
    # The whole name is kept: talk.mp3 and talk.wav are two recordings.
    beside = args.output / recording.relative_to(args.folder)
    return beside.with_name(f"{beside.name}.txt"), beside.with_name(f"{beside.name}.srt")


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all, also where the program is ended meanwhile."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def is_done(args: argparse.Namespace, recording: Path) -> bool:
    """Whether a recording was transcribed after it was last changed."""
    _, subtitles = outputs(args, recording)
    return subtitles.exists() and subtitles.stat().st_mtime >= recording.stat().st_mtime


async def run(args: argparse.Namespace) -> int:
    """Transcribe what is not done yet. Returns how many recordings failed."""
    found = sorted(path for path in args.folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    todo = [path for path in found if not is_done(args, path)]
    print(f"{len(found)} recordings, {len(found) - len(todo)} of them done before", flush=True)
    batch = Batch(args, todo)
    workers = [asyncio.create_task(batch.work()) for _ in range(args.jobs)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
    return batch.n_failed


def main() -> None:
    """Read the arguments, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with recordings, also in folders within it")
    parser.add_argument("--output", type=Path, help="a folder for the texts (default: beside the recordings)")
    parser.add_argument("--jobs", type=int, default=4, help="recordings at the same time (default: %(default)s)")
    parser.add_argument("--language", help='code such as "en" (default: detected for each recording)')
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the server (default: %(default)s)")
    parser.add_argument("--api-key", default=os.environ.get("TUTTI_API_KEY") or None, help="default: TUTTI_API_KEY")
    args = parser.parse_args()
    args.output = args.output or args.folder
    if not args.folder.is_dir():
        parser.error(f"expected a folder, got {args.folder}")
    if args.jobs < 1:
        parser.error(f"--jobs: expected 1 or more, got {args.jobs}")
    try:
        n_failed = asyncio.run(run(args))
    except (tutti.TuttiError, OSError) as error:
        sys.exit(f"transcribe_folder.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    if n_failed:
        sys.exit(f"transcribe_folder.py: {n_failed} failed; run it again to try these once more")


if __name__ == "__main__":
    main()
