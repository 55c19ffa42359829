"""A hundred small recordings: containers, codecs, rates, layouts and faults, with what must become of each.

`tests/app/media/test_corpus.py` makes and decodes them; `tests/compat/table.py` writes their table.
"""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from tests.made_files import Track, damaged, made_file, tone
from tutti_server.app.media.pcm import Samples
from tutti_server.engine.api import SAMPLE_RATE

TONES = ((0.0, 1.5, 440.0), (2.0, 3.5, 660.0), (4.0, 5.5, 880.0), (6.0, 8.0, 1100.0))
"""What each recording holds: start and end in seconds, and the pitch in Hz."""
LENGTH_S = 8.0
LATE_S = 4.9
GAP_AT_S, GAP_S = 3.75, 15.0
"""At which second of the sound the times of packets jump, and how far."""
FAULTS = {
    "whole": "times and pitches are right, and nothing is warned of",
    "late": f"a track that begins {LATE_S:g} s in is that late",
    "gap": f"a pause of {GAP_S:g} s in the packets' times is silence",
    "damaged": "what follows damaged data keeps its time; the stretch is in `uncovered` and in `lost_audio`",
    "cut": "what is there keeps its time; `cut_off` where the file states its length",
    "joined": "a second recording, joined byte by byte, follows the first",
    "inverted": "of two channels that cancel each other one is heard, with `channels_cancel`",
}
"""What may be wrong with a recording, and what becomes of it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A container and a codec."""

    container: str
    codec: str
    rates: tuple[int, ...]
    faults: tuple[str, ...]
    """The faults for which its recordings are made."""
    states_length: bool = True
    """Whether a recording that is cut says so."""

    @property
    def layouts(self) -> tuple[str, ...]:
        """The layouts of its channels."""
        return ("mono", "stereo") if self.codec == "libmp3lame" else ("mono", "stereo", "5.1")


ALL = ("late", "gap", "damaged", "cut")
KINDS = (
    Kind("wav", "pcm_s16le", (8_000, 44_100, 96_000), ("cut", "joined", "inverted")),
    Kind("wav", "pcm_mulaw", (8_000,), ("cut", "joined", "inverted")),
    Kind("wav", "pcm_f32le", (48_000,), ("cut", "joined")),
    Kind("w64", "pcm_s24le", (48_000,), ()),
    Kind("aiff", "pcm_s16be", (22_050,), ("cut",)),
    Kind("au", "pcm_alaw", (8_000,), ("cut",)),
    Kind("caf", "pcm_s16le", (44_100,), ("cut",)),
    Kind("flac", "flac", (16_000, 48_000), ("damaged", "cut", "joined", "inverted")),
    Kind("ogg", "libopus", (48_000,), ("gap", "damaged", "joined", "inverted"), states_length=False),
    Kind("ogg", "flac", (44_100,), ("joined",), states_length=False),
    Kind("webm", "libopus", (48_000,), (*ALL, "joined", "inverted")),
    Kind("matroska", "aac", (44_100, 16_000), (*ALL, "joined")),
    Kind("matroska", "pcm_s16le", (16_000,), (*ALL, "joined")),
    Kind("mp4", "aac", (48_000, 22_050), ("late", "gap", "damaged", "joined", "inverted")),
    Kind("mov", "pcm_s16le", (44_100,), ("late", "joined")),
    Kind("mpegts", "aac", (48_000,), ("gap", "damaged", "joined"), states_length=False),
    Kind("flv", "libmp3lame", (44_100,), ("gap", "cut")),
    Kind("asf", "libmp3lame", (44_100,), ("gap",), states_length=False),
    Kind("avi", "libmp3lame", (44_100,), ("damaged", "cut")),
    Kind("avi", "pcm_s16le", (16_000,), ("damaged", "cut")),
    Kind("mp3", "libmp3lame", (44_100, 16_000, 8_000), ("damaged", "cut", "joined", "inverted")),
    Kind("adts", "aac", (44_100,), ("joined",), states_length=False),
    Kind("ac3", "ac3", (48_000,), ("damaged", "joined"), states_length=False),
)


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording of the corpus."""

    kind: Kind
    rate: int
    layout: str
    fault: str

    @property
    def name(self) -> str:
        """What tests call it."""
        return f"{self.kind.container}-{self.kind.codec}-{self.rate}-{self.layout}-{self.fault}"

    def made(self) -> bytes:
        """Its bytes."""
        gap = (GAP_AT_S, GAP_S) if self.fault == "gap" else (0.0, 0.0)
        track = Track(samples=sound(), offset_s=LATE_S * (self.fault == "late"), gap=gap)
        kind = self.kind
        content = made_file(
            kind.container, kind.codec, self.rate, [track], layout=self.layout, is_inverted=self.fault == "inverted"
        )
        match self.fault:
            case "damaged":
                return damaged(content, 0.45, 0.1)
            case "cut":
                return content[: int(len(content) * 0.6)]
            case "joined":
                return content * 2
        return content

    def tones(self) -> list[tuple[float, float, float]]:
        """What is heard of it for certain: start and end in seconds, and the pitch."""
        match self.fault:
            case "late":
                return [(start + LATE_S, end + LATE_S, pitch) for start, end, pitch in TONES]
            case "gap":
                moved = [GAP_S * (start >= GAP_AT_S) for start, _, _ in TONES]
                return [(start + by, end + by, pitch) for by, (start, end, pitch) in zip(moved, TONES, strict=True)]
            case "damaged":
                return [TONES[0], TONES[-1]]
            case "cut":
                return list(TONES[:2])
            case "joined":
                return [*TONES, *((start + LENGTH_S, end + LENGTH_S, pitch) for start, end, pitch in TONES)]
        return list(TONES)

    @property
    def warnings(self) -> set[str]:
        """The codes of its warnings."""
        expected = {"damaged": "lost_audio", "inverted": "channels_cancel"}
        if self.fault == "cut":
            return {"cut_off"} if self.kind.states_length else set()
        return {expected[self.fault]} if self.fault in expected else set()


def sound() -> Samples:
    """The samples of every recording, at 16 kHz."""
    samples = np.zeros(round(LENGTH_S * SAMPLE_RATE), np.float32)
    for start_s, end_s, pitch in TONES:
        start, end = round(start_s * SAMPLE_RATE), round(end_s * SAMPLE_RATE)
        samples[start:end] = tone(end_s - start_s, pitch)
    return samples


def corpus() -> Iterator[Recording]:
    """All recordings: each rate and each layout whole, and each fault once."""
    for kind in KINDS:
        for rate in kind.rates:
            for layout in kind.layouts if rate == kind.rates[0] else ("mono",):
                yield Recording(kind, rate, layout, "whole")
        for fault in kind.faults:
            yield Recording(kind, kind.rates[0], "stereo" if fault == "inverted" else "mono", fault)


def table() -> str:
    """The section of the page: a row for each container and codec."""
    text = io.StringIO()
    recordings = list(corpus())
    text.write("\n## Recordings\n\n")
    text.write(
        f"{len(recordings)} small recordings are made and decoded in a test, which checks times and warnings: mono, "
        "stereo and, where the format has it, 5.1.\n\n"
    )
    text.write("| fault | what becomes of it |\n|---|---|\n")
    text.writelines(f"| {fault} | {meaning} |\n" for fault, meaning in FAULTS.items())
    text.write("\n| container | codec | rates, kHz | faults |\n|---|---|---|---|\n")
    for kind, each in groupby(recordings, lambda recording: recording.kind):
        text.write(_row(kind, list(each)))
    return text.getvalue()


def _row(kind: Kind, recordings: Iterable[Recording]) -> str:
    whole = [each for each in recordings if each.fault == "whole"]
    rates = ", ".join(f"{rate / 1000:g}" for rate in dict.fromkeys(each.rate for each in whole))
    return f"| {kind.container} | `{kind.codec}` | {rates} | {', '.join(kind.faults) or '–'} |\n"
