"""Tells the speakers of one uploaded file apart, beside its transcription."""

import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np

from app.dialects.openai.speakers_wire import MAX_REFERENCE_S, MIN_REFERENCE_S, REFERENCES, KnownSpeaker, segments
from app.errors import MediaError, RequestError
from app.media.decoders import Decoders
from app.media.pcm import Samples
from app.session import events
from app.speakers.diarization import MAX_SPEAKERS, Diarizer
from app.speakers.model import SpeakerModel
from app.speakers.spoken import speech_of, spoken_texts
from engine.api import SAMPLE_RATE


class FileSpeakers:
    """Listens to a file while it is transcribed, and then knows who has said what."""

    def __init__(self, model: SpeakerModel, known: Sequence[KnownSpeaker]) -> None:
        self._model = model
        self._known = known
        self._diarizer = Diarizer(model.embed)
        self._references = np.zeros((0, 0), np.float32)
        self._segments: list[events.Segment] = []

    async def learn(self, decoders: Decoders) -> None:
        """Embed the references of the known speakers.

        Raises:
            RequestError: a reference is no audio, or too short or too long.
        """
        if self._known:
            clips = [await _reference(decoders, each) for each in self._known]
            self._references = await self._model.embed(clips)

    def listen(self, audio: AsyncGenerator[Samples, None]) -> AsyncGenerator[Samples, None]:
        """Pass on the audio of the file."""
        return self._diarizer.listen(audio)

    def add(self, event: events.Event) -> None:
        """Keep the text of the file."""
        if isinstance(event, events.Segment):
            self._segments.append(event)

    async def segments(self) -> list[dict[str, Any]]:
        """The text by speaker, once the file is transcribed."""
        thresholds = self._model.thresholds
        speakers = await self._diarizer.speakers(speech_of(self._segments), thresholds, MAX_SPEAKERS)
        found = speakers.known(self._references, thresholds.knows)
        names = {speaker: self._known[reference].name for speaker, reference in found.items()}
        return segments(list(spoken_texts(self._segments, speakers)), names)


async def _reference(decoders: Decoders, known: KnownSpeaker) -> Samples:
    """The audio of a reference, mono at 16 kHz."""
    pieces: list[Samples] = []
    n_samples = 0
    with tempfile.TemporaryFile() as file:
        file.write(known.reference)
        file.seek(0)
        try:
            async with aclosing(decoders.decode(file)) as audio:
                async for piece in audio:
                    pieces.append(piece)
                    n_samples += len(piece)
                    if n_samples > (MAX_REFERENCE_S + 1) * SAMPLE_RATE:
                        break
        except MediaError as error:
            raise RequestError(400, f"{REFERENCES}: {known.name}: {error}", REFERENCES, "invalid_file") from error
    seconds = n_samples / SAMPLE_RATE
    # A tenth of a second more or less is the codec's.
    if not MIN_REFERENCE_S - 0.1 <= seconds <= MAX_REFERENCE_S + 0.1:
        expected = f"a clip of {MIN_REFERENCE_S:g} to {MAX_REFERENCE_S:g} s"
        got = f"{seconds:.1f} s" if seconds <= MAX_REFERENCE_S + 1 else "a longer one"
        raise RequestError(400, f"{REFERENCES}: {known.name}: expected {expected}, got {got}", REFERENCES)
    return np.concatenate(pieces)
