"""Writes recordings to try the examples with, made of the clips in `tests/audio`.

    .venv/bin/python examples/recordings.py build/examples

Any recordings of your own can take their place.
"""

import argparse
import base64
import json
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]

AUDIO = Path(__file__).parents[1] / "tests" / "audio"
RATE = 16_000
MEETING_RATE = 48_000
PACKET_S = 0.02


class Turn(NamedTuple):
    """What a speaker says, and when."""

    speaker: str
    clip: str
    at_s: float
    """Where it begins in the recording, in seconds."""
    until_s: float | None = None
    """Where the clip is cut, in seconds; None: at its end."""


# Customer begins before Agent has finished: sides of a call do that, and their text must still come in order.
CALL = [Turn("Agent", "hello", 0.0), Turn("Customer", "train", 2.5), Turn("Agent", "call", 7.6, until_s=2.3)]
# Ben speaks while Ada does, and Ada speaks again after a pause in which nothing of hers is sent.
MEETING = [Turn("Ada", "hello", 1.0), Turn("Ben", "train", 3.0), Turn("Ada", "call", 9.0, until_s=2.3)]


def read(turn: Turn, rate: int = RATE, layout: str = "mono") -> Samples:
    """The samples of a turn, `(frames, channels)`."""
    resampler = av.AudioResampler("s16", layout, rate)
    with av.open(AUDIO / f"{turn.clip}.flac") as container:
        frames = [each for frame in container.decode(audio=0) for each in resampler.resample(frame)]
    frames += resampler.resample(None)
    n_channels = len(frames[0].layout.channels)
    samples = np.concatenate([frame.to_ndarray().reshape(-1, n_channels) for frame in frames]).astype(np.int16)
    return samples if turn.until_s is None else samples[: round(turn.until_s * rate)]


def write_wav(path: Path, samples: Samples) -> None:
    """Write `(frames, channels)` of `RATE` as a WAV file."""
    with wave.open(str(path), "wb") as writer:
        writer.setnchannels(samples.shape[1])
        writer.setsampwidth(2)
        writer.setframerate(RATE)
        writer.writeframes(samples.tobytes())


def call() -> Samples:
    """A call: each side has a channel of its own."""
    sides = sorted({turn.speaker for turn in CALL})
    clips = [(turn, read(turn)[:, 0]) for turn in CALL]
    mixed = np.zeros((max(round(turn.at_s * RATE) + len(clip) for turn, clip in clips), len(sides)), np.int16)
    for turn, clip in clips:
        begin = round(turn.at_s * RATE)
        mixed[begin : begin + len(clip), sides.index(turn.speaker)] += clip
    return mixed


def packets() -> Iterator[dict[str, object]]:
    """A meeting as a voice server sends it: packets of 20 ms, 48 kHz stereo, of those who speak."""
    n_frames = round(MEETING_RATE * PACKET_S)
    found = []
    for turn in MEETING:
        samples = read(turn, MEETING_RATE, "stereo")
        for number, begin in enumerate(range(0, len(samples) - n_frames + 1, n_frames)):
            found.append((turn.at_s + number * PACKET_S, turn.speaker, samples[begin : begin + n_frames]))
    for at_s, speaker, samples in sorted(found, key=lambda packet: packet[0]):
        pcm = base64.b64encode(samples.tobytes()).decode()
        yield {"at_s": round(at_s, 3), "speaker": speaker, "pcm": pcm}


def write_all(folder: Path) -> None:
    """Write every recording."""
    hello, train = (read(Turn("", name, 0.0)) for name in ("hello", "train"))
    (folder / "talks" / "monday").mkdir(parents=True, exist_ok=True)
    write_wav(folder / "talks" / "train.wav", train)
    write_wav(folder / "talks" / "monday" / "hello.wav", hello)
    write_wav(folder / "speech.wav", hello)
    (folder / "speech.pcm").write_bytes(hello.tobytes())
    write_wav(folder / "call.wav", call())
    with (folder / "meeting.jsonl").open("w") as file:
        file.writelines(json.dumps(packet) + "\n" for packet in packets())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write them")
    destination = parser.parse_args().folder
    try:
        write_all(destination)
    except OSError as error:
        sys.exit(f"recordings.py: {error}")
    for path in sorted(destination.rglob("*.*")):
        print(path)
