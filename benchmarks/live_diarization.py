"""The speakers of a recording as a live session finds them: as they are known when text goes out, and in the end."""

from collections.abc import Iterator, Sequence

import numpy as np

from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.messages.events import SpeakerSpan
from tutti_server.app.session.observers.speaker_stretches import SpeechStretches, Stretch
from tutti_server.app.session.speech.endpointing import FRAME_SAMPLES, WebRtcDetector
from tutti_server.app.voices.file_speakers import Embed, Span
from tutti_server.app.voices.live_clustering import LiveClusters
from tutti_server.app.voices.speaker_clustering import SpeakerThresholds
from tutti_server.engine.api import SAMPLE_RATE

TEXT_AFTER_S = 0.6
"""Text goes out this long after its speech: the usual silence of an endpoint, and a moment."""


class LiveTimeline:
    """Who speaks when, as a client knows it that follows the `speakers` events."""

    def __init__(self) -> None:
        self._labels: dict[int, tuple[Stretch, int]] = {}

    def note(self, stretches: Sequence[Stretch], found: dict[int, int]) -> None:
        known = {id_: stretch for id_, (stretch, _) in self._labels.items()} | {each.id: each for each in stretches}
        self._labels |= {id_: (known[id_], speaker) for id_, speaker in found.items() if id_ in known}

    def spans(self) -> list[SpeakerSpan]:
        """All stretches with their speakers; later ones of the list replace earlier ones where they overlap."""
        ordered = sorted(self._labels.values(), key=lambda each: (each[0].is_run, each[0].id))
        return [SpeakerSpan(each.start / SAMPLE_RATE, each.end / SAMPLE_RATE, speaker) for each, speaker in ordered]


def speaker_at(spans: Sequence[SpeakerSpan], start_s: float, end_s: float) -> int | None:
    """Who speaks in the middle of a time, else nearest to it; `None` if there are no spans."""
    middle_s = (start_s + end_s) / 2
    for span in reversed(spans):
        if span.from_s <= middle_s < span.until_s:
            return span.speaker
    nearest = min(spans, key=lambda each: max(each.from_s - middle_s, middle_s - each.until_s), default=None)
    return nearest.speaker if nearest else None


async def live_speakers(
    samples: Samples, embed: Embed, thresholds: SpeakerThresholds, most: int, pieces: Sequence[Span]
) -> tuple[list[int], list[int]]:
    """The speakers of pieces of a recording: as they are known when their text goes out, and in the end."""
    speakers, timeline = LiveClusters(thresholds, most), LiveTimeline()
    first: list[int] = []
    for now_s, stretches in _stretches(samples):
        while len(first) < len(pieces) and pieces[len(first)][1] + TEXT_AFTER_S <= now_s:
            first.append(speaker_at(timeline.spans(), *pieces[len(first)]) or 0)
        if stretches:
            vectors = await embed([each.samples for each in stretches])
            found = speakers.add([each.id for each in stretches], vectors, [each.is_short for each in stretches])
            timeline.note(stretches, found)
    spans = timeline.spans()
    last = [speaker_at(spans, *each) or 0 for each in pieces]
    return first + last[len(first) :], last


def _stretches(samples: Samples) -> Iterator[tuple[float, list[Stretch]]]:
    """The time after each frame, in seconds, and the stretches that end with it."""
    detector, cutter = WebRtcDetector(), SpeechStretches(0)
    for position in range(0, len(samples) - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        frame = np.ascontiguousarray(samples[position : position + FRAME_SAMPLES])
        found = list(cutter.push(position, frame, detector.is_speech(frame)))
        yield (position + FRAME_SAMPLES) / SAMPLE_RATE, found
    yield len(samples) / SAMPLE_RATE, list(cutter.end_run())
