"""The final text of a recording, collected from the events of its session."""

from dataclasses import dataclass, field

from app.languages import WITHOUT_SPACES
from app.session import events


@dataclass(slots=True)
class Transcript:
    """The transcript of one recording. `add` every event of its session."""

    segments: list[events.Segment] = field(default_factory=list)
    utterances: list[str] = field(default_factory=list)
    """The texts of all utterances that have text."""
    uncovered: list[tuple[float, float]] = field(default_factory=list)
    """Stretches of detected speech without text: start and end in seconds."""
    audio_s: float = 0.0
    """The length of the recording in seconds, once it is complete."""

    def add(self, event: events.Event) -> None:
        """Keep what belongs to the transcript; other events are ignored."""
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
        """The language of the first segment that has one."""
        return next((segment.language for segment in self.segments if segment.language), None)

    @property
    def text(self) -> str:
        """The whole text."""
        return separator(self.language).join(self.utterances)


def separator(language: str | None) -> str:
    """The text between two utterances in this language: nothing, or a space."""
    return "" if language in WITHOUT_SPACES else " "
