"""Tells the speakers of one uploaded file apart, beside its transcription."""

import asyncio
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import IO

import numpy as np

from tutti_server.app.dialects.openai.speakers_wire import (
    CHANNEL_NAMES,
    MAX_REFERENCE_S,
    MIN_REFERENCE_S,
    REFERENCES,
    KnownSpeaker,
    Spoken,
)
from tutti_server.app.errors import MediaError, RequestError
from tutti_server.app.media.decoder_workers import Decoders
from tutti_server.app.media.pcm import Samples
from tutti_server.app.session.messages import events
from tutti_server.app.voices.file_speakers import Diarizer
from tutti_server.app.voices.speaker_model import SpeakerModel
from tutti_server.app.voices.words_by_speaker import SpokenText, speech_of, spoken_texts
from tutti_server.engine.api import SAMPLE_RATE


class TellsSpeakers(ABC):
    """Knows who has said what in one file."""

    def __init__(self, n_channels: int | None = None) -> None:
        """Begin; of a file with `n_channels` each is transcribed on its own, with `None` they are mixed."""
        self.n_channels = n_channels
        self._segments: list[events.Segment] = []

    @abstractmethod
    async def learn(self, decoders: Decoders, file: IO[bytes], track: str | None) -> None:
        """Get ready for the file.

        Raises:
            RequestError: what the client has said of its speakers cannot be.
            MediaError: the file is no audio, or has no such track.
        """

    def listen(self, audio: AsyncGenerator[Samples, None]) -> AsyncGenerator[Samples, None]:
        """Pass on the audio of the file."""
        return audio

    def add(self, event: events.Event) -> None:
        """Keep the text of the file."""
        if isinstance(event, events.Segment):
            self._segments.append(event)

    @abstractmethod
    async def spoken(self) -> Spoken:
        """The text by speaker, once the file is transcribed."""


class ChannelSpeakers(TellsSpeakers):
    """Each channel of the file has a speaker, whom the client names."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(len(names))
        self._names = names

    async def learn(self, decoders: Decoders, file: IO[bytes], track: str | None) -> None:
        """See `TellsSpeakers`. The file must have as many channels as there are names."""
        n_channels = await decoders.n_channels(file, track)
        if n_channels != len(self._names):
            message = f"{CHANNEL_NAMES}: expected {n_channels}, one for each channel, got {len(self._names)}"
            raise RequestError(400, message, CHANNEL_NAMES)

    async def spoken(self) -> Spoken:
        """See `TellsSpeakers`."""
        texts = [
            SpokenText(
                start_s=each.start_s,
                end_s=each.end_s,
                speaker=each.channel,
                text=each.text.strip(),
                words=each.words,
                language=each.language,
                redactions=each.redactions,
            )
            for each in sorted(self._segments, key=lambda each: each.start_s)
        ]
        return Spoken(texts, dict(enumerate(self._names)))


class FileSpeakers(TellsSpeakers):
    """Listens to a file of one channel while it is transcribed, and then knows who has said what."""

    def __init__(self, model: SpeakerModel, known: Sequence[KnownSpeaker], max_speakers: int) -> None:
        super().__init__()
        self._model = model
        self._known = known
        self._max_speakers = max_speakers
        self._diarizer = Diarizer(model.embed)
        self._references = np.zeros((0, 0), np.float32)

    async def learn(self, decoders: Decoders, file: IO[bytes], track: str | None) -> None:
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

    async def spoken(self) -> Spoken:
        """The text by speaker, once the file is transcribed."""
        await self._diarizer.finish()
        # Seconds for hours of speech: in a thread, so that live sessions go on.
        return await asyncio.to_thread(self._by_speaker)

    def _by_speaker(self) -> Spoken:
        thresholds = self._model.thresholds
        speakers = self._diarizer.speakers(speech_of(self._segments), thresholds, self._max_speakers)
        found = speakers.known(self._references, thresholds.knows)
        names = {speaker: self._known[reference].name for speaker, reference in found.items()}
        known = [each.name for each in self._known]
        return Spoken(list(spoken_texts(self._segments, speakers)), names, known)


async def _reference(decoders: Decoders, known: KnownSpeaker) -> Samples:
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
