"""Tells the speakers of one recording apart, beside its transcription."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from tutti_server.app.media.pcm import AudioDecoder, AudioFormat, Samples
from tutti_server.app.session.messages.events import Word
from tutti_server.app.voices.file_speakers import Diarizer
from tutti_server.app.voices.speaker_model import SpeakerModel
from tutti_server.app.voices.words_by_speaker import SpokenWord, spoken_words


class RecordingSpeakers:
    """Listens to a recording of one channel while it is transcribed, and then knows who has spoken each word."""

    def __init__(self, model: SpeakerModel, audio: AudioFormat, max_speakers: int) -> None:
        """`audio` is the format of the recording where it arrives as bytes."""
        self._model = model
        self._max_speakers = max_speakers
        self._diarizer = Diarizer(model.embed)
        self._decoder = AudioDecoder(audio)

    async def listen(self, audio: AsyncIterator[Samples] | AsyncIterator[bytes]) -> AsyncGenerator[Samples, None]:
        """Pass on the audio of the recording as mono samples at 16 kHz."""
        async for piece in self._diarizer.listen(self._samples(audio)):
            yield piece

    async def _samples(self, audio: AsyncIterator[Samples] | AsyncIterator[bytes]) -> AsyncGenerator[Samples, None]:
        async for piece in audio:
            yield self._decoder.decode(piece)[0] if isinstance(piece, bytes) else piece
        yield self._decoder.drain()[0]

    async def labels(self, words: Sequence[Word]) -> list[SpokenWord]:
        """The speaker of each word, once the recording is transcribed."""
        await self._diarizer.finish()
        # Seconds for hours of speech: in a thread, so that live sessions go on.
        return await asyncio.to_thread(self._by_speaker, words)

    def _by_speaker(self, words: Sequence[Word]) -> list[SpokenWord]:
        spans = [(each.start_s, each.end_s) for each in words]
        speakers = self._diarizer.speakers(spans, self._model.thresholds, self._max_speakers)
        return spoken_words(words, speakers)
