"""Captions a call that has each side on a channel of its own: prints a dialogue, and writes subtitles with names."""

import argparse
import asyncio
import math
import os
import sys
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import tutti


class Dialogue:
    """Puts the utterances of all channels in the order in which they began.

    A long sentence becomes final after a short answer that was given during it. The answer waits for it here.
    """

    def __init__(self) -> None:
        self._began_s: dict[int, float] = {}
        """When the open utterances began, by their numbers."""
        self._ended: list[tutti.Utterance] = []

    def add(self, event: tutti.Event) -> Iterator[tutti.Utterance]:
        """Apply an event. Yields the utterances before which nothing more can come."""
        match event:
            case tutti.SpeechStarted():
                self._began_s[event.utterance] = event.at_s
            case tutti.Utterance():
                self._began_s.pop(event.utterance, None)
                self._ended.append(event)
                self._ended.sort(key=lambda utterance: utterance.start_s)
        earliest_s = min(self._began_s.values(), default=math.inf)
        while self._ended and self._ended[0].start_s <= earliest_s:
            yield self._ended.pop(0)


async def caption(args: argparse.Namespace) -> None:
    """Stream the recording, print its dialogue, and write its subtitles."""
    with tutti.WavFile(args.recording) as wav:
        n_channels = wav.format.channels
    if n_channels != len(args.names):
        raise tutti.BadOption("--names", f"one for each of the {n_channels} channels", " ".join(args.names))
    # `speed` streams the file like a live call; without it a file is uploaded, and its channels are mixed.
    events = tutti.transcribe_file(
        args.url, args.recording, speed=args.speed, language=args.language, interim=False, api_key=args.api_key
    )
    dialogue = Dialogue()
    segments: list[tutti.Segment] = []
    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, tutti.Segment):
                    segments.append(event)
                for utterance in dialogue.add(event):
                    if utterance.text:
                        minutes, seconds = divmod(utterance.start_s, 60)
                        clock = f"{int(minutes):02}:{seconds:04.1f}"
                        print(f"{clock}  {args.names[utterance.channel]}: {utterance.text.strip()}", flush=True)
    finally:
        # Also after Ctrl-C: what was final until then is kept.
        if segments:
            named = [replace(each, text=f"{args.names[each.channel]}: {each.text.strip()}") for each in segments]
            args.srt.write_text(tutti.to_srt(named), encoding="utf-8")


def main() -> None:
    """Read the arguments, and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", type=Path, help="a WAV file with a side of the call on each channel")
    parser.add_argument("--names", nargs="+", default=["Agent", "Customer"], help="the names of the channels, in order")
    parser.add_argument("--srt", type=Path, help="where the subtitles go (default: beside the recording)")
    parser.add_argument("--speed", type=float, default=1.0, help="1 streams in real time, 2 twice as fast")
    parser.add_argument("--language", help='code such as "en" (default: detected for each side)')
    parser.add_argument("--url", default="ws://127.0.0.1:8000", help="the server (default: %(default)s)")
    parser.add_argument("--api-key", default=os.environ.get("TUTTI_API_KEY") or None, help="default: TUTTI_API_KEY")
    args = parser.parse_args()
    args.srt = args.srt or args.recording.with_suffix(".srt")
    try:
        asyncio.run(caption(args))
    except (tutti.TuttiError, OSError) as error:
        sys.exit(f"call.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
