"""The final text of a recording, collected from the events of its session."""

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from tutti_server.app.languages import joined
from tutti_server.app.session.messages import events


@dataclass(slots=True, kw_only=True)
class Transcript:
    """The transcript of one recording. `add` every event of its session."""

    segments: list[events.Segment] = field(default_factory=list)
    utterances: list[str] = field(default_factory=list)
    """The texts of all utterances that have text."""
    uncovered: list[tuple[float, float]] = field(default_factory=list)
    """Stretches of detected speech without text, and of lost audio: start and end in seconds, in order."""
    notices: list[events.Notice] = field(default_factory=list)
    """What else there is to know of the recording."""
    audio_s: float = 0.0
    """The length of the recording in seconds, once it is complete."""

    def add(self, event: events.Event) -> None:
        """Keep what belongs to the transcript; other events are ignored."""
        match event:
            case events.Segment():
                self.segments.append(event)
            case events.Utterance():
                self.utterances += [event.text] if event.text else []
                for span in event.uncovered:
                    insort(self.uncovered, span)
            case events.Notice():
                self.notices.append(event)
                if event.lost:
                    insort(self.uncovered, event.lost)
            case events.Stopped():
                self.audio_s = event.audio_s

    @property
    def language(self) -> str | None:
        """The language of the first segment that has one."""
        return next((segment.language for segment in self.segments if segment.language), None)

    @property
    def text(self) -> str:
        """The text of all segments."""
        return joined(self.utterances)


def as_warnings(notices: Iterable[events.Notice]) -> dict[str, object]:
    """The field `warnings` of a JSON object; no field where there are none."""
    warnings = [{"code": notice.code, "message": notice.message} for notice in notices]
    return {"warnings": warnings} if warnings else {}
