"""A meeting bot without a meeting: packets of speakers come from a file, captions with names go to the terminal.

Each line of the file is a JSON object: {"at_s": 1.02, "speaker": "Ada", "pcm": "..."}, where pcm is base64 of 48 kHz
stereo audio of 16 bits, as Discord's packets of 20 ms are once they are decoded.
"""

import argparse
import asyncio
import base64
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import tutti
from captioner import FRAME_BYTES, Caption, Captioner

TICK_S = 0.1


class Terminal:
    """Shows captions as lines of a terminal."""

    async def post(self, caption: Caption) -> None:
        """Print it."""
        minutes, seconds = divmod(caption.start_s, 60)
        print(f"{int(minutes):02}:{seconds:04.1f}  {caption.speaker}: {caption.text}", flush=True)


def read(path: Path) -> Iterator[tuple[float, str, bytes]]:
    """The packets of a file: time, speaker, audio."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                packet = json.loads(line)
                at_s, speaker, pcm = float(packet["at_s"]), str(packet["speaker"]), base64.b64decode(packet["pcm"])
            except (ValueError, KeyError, TypeError) as error:
                expected = "expected a JSON object with at_s, speaker and pcm"
                raise tutti.AudioError(f"{path}:{number}", f"{expected}, got {line[:40]!r}") from error
            if len(pcm) % FRAME_BYTES:
                raise tutti.AudioError(f"{path}:{number}", f"expected whole stereo samples, got {len(pcm)} bytes")
            yield at_s, speaker, pcm


async def play(args: argparse.Namespace) -> bool:
    """Hand the packets to a captioner at their times. Returns whether all speakers were captioned."""
    loop = asyncio.get_running_loop()
    began_s, now_s = loop.time(), 0.0
    async with Captioner(args.url, Terminal(), api_key=args.api_key, language=args.language) as captioner:
        for at_s, speaker, pcm in read(args.packets):
            while now_s + TICK_S <= at_s:
                now_s += TICK_S
                await asyncio.sleep(began_s + now_s / args.speed - loop.time())
                await captioner.tick(now_s)
            captioner.packet(speaker, pcm, at_s)
    return not captioner.has_failed


def main() -> None:
    """Read the arguments, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packets", type=Path, help="a file of packets")
    parser.add_argument("--speed", type=float, default=1.0, help="1 plays the meeting in real time")
    parser.add_argument("--language", help='code such as "en" (default: detected for each speaker)')
    parser.add_argument("--url", default="ws://127.0.0.1:8000", help="the server (default: %(default)s)")
    parser.add_argument("--api-key", default=os.environ.get("TUTTI_API_KEY") or None, help="default: TUTTI_API_KEY")
    args = parser.parse_args()
    if not args.speed > 0:
        parser.error(f"--speed: expected a number above 0, got {args.speed:g}")
    try:
        sys.exit(0 if asyncio.run(play(args)) else 1)
    except* (tutti.TuttiError, OSError) as errors:
        sys.exit(f"from_file.py: {errors.exceptions[0]}")
    except* KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
