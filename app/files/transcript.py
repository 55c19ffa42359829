"""What is kept of a transcription: its final texts, as events bring them."""

from dataclasses import dataclass, field

from app.session import events
from app.languages import WITHOUT_SPACES


@dataclass(slots=True)
class Transcript:
    """What a transcription collects from its events."""

    segments: list[events.Segment] = field(default_factory=list)
    utterances: list[str] = field(default_factory=list)
    uncovered: list[tuple[float, float]] = field(default_factory=list)
    """Stretches of detected speech without text."""
    audio_s: float = 0.0

    def take(self, event: events.Event) -> None:
        match event:
            case events.Segment():
                self.segments.append(event)
            case events.Utterance():
                self.utterances += [event.text] if event.text else []
                self.uncovered += event.uncovered
            case events.Stopped():
                self.audio_s = event.audio_s

    @property
    def language(self) -> str | None:
        return next((segment.language for segment in self.segments if segment.language), None)

    @property
    def text(self) -> str:
        return separator(self.language).join(self.utterances)


def separator(language: str | None) -> str:
    """What stands between two utterances in this language."""
    return "" if language in WITHOUT_SPACES else " "
