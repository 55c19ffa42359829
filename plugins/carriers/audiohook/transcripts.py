"""The text of a session as AudioHook's events of the type `transcript`."""

import uuid
from collections.abc import Sequence
from typing import Any

from tutti_server.app.session.messages import events
from tutti_server.plugins.carriers.audiohook.timeline import Timeline, write_duration

NAMESPACE = uuid.UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
"""The namespace that makes ids of transcripts, with the id of the session."""


class Transcripts:
    """Makes the transcripts of one session. A final one has the id of the interims that it replaces."""

    def __init__(self, session: str, channels: Sequence[str], timeline: Timeline) -> None:
        self._session = session
        self._channels = channels
        self._timeline = timeline
        self._n_segments: dict[int, int] = {}
        """How many segments each open utterance has."""

    def interim(self, event: events.Interim) -> dict[str, Any]:
        """The transcript of an interim."""
        part = self._n_segments.get(event.utterance, 0)
        words = (*event.stable_words, *event.tail_words)
        return self._transcript(event, part, event.stable + event.tail, 0.0, words)

    def final(self, event: events.Segment) -> dict[str, Any]:
        """The transcript of a segment, which is final."""
        part = self._n_segments.get(event.utterance, 0)
        self._n_segments[event.utterance] = part + 1
        return self._transcript(event, part, event.text, event.confidence, event.words)

    def end(self, event: events.Utterance) -> None:
        """The utterance has no more transcripts."""
        self._n_segments.pop(event.utterance, None)

    def _transcript(
        self,
        event: events.Interim | events.Segment,
        part: int,
        text: str,
        confidence: float,
        words: Sequence[events.Word],
    ) -> dict[str, Any]:
        interpretation: dict[str, Any] = {"type": "display", "transcript": text.strip()}
        if words:
            interpretation["tokens"] = [self._token(word) for word in words]
        alternative: dict[str, Any] = {"confidence": round(confidence, 4), "interpretations": [interpretation]}
        if isinstance(event, events.Segment) and event.language:
            alternative["languages"] = [event.language]
        data = {
            "id": str(uuid.uuid5(NAMESPACE, f"{self._session}/{event.utterance}/{part}")),
            "channel": self._channels[event.channel],
            "isFinal": isinstance(event, events.Segment),
            **self._place(event.start_s, event.end_s),
            "alternatives": [alternative],
        }
        return {"type": "transcript", "data": data}

    def _token(self, word: events.Word) -> dict[str, Any]:
        return {
            "type": "word",
            "value": word.text,
            "confidence": round(word.confidence, 4),
            **self._place(word.start_s, word.end_s),
        }

    def _place(self, start_s: float, end_s: float) -> dict[str, str]:
        start = self._timeline.at(start_s)
        end = max(self._timeline.at(end_s, is_end=True), start)
        return {"offset": write_duration(start), "duration": write_duration(end - start)}
