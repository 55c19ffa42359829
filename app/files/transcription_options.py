"""The options of the transcription of a recording."""

from dataclasses import dataclass, fields

from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands
from tutti_server.engine import api

FILE_ENDPOINTING = commands.Endpointing(silence_ms=2000, max_utterance_s=300.0)
"""An utterance of a file ends at longer pauses than a live one, so that its windows hold more audio.

Word errors of Whisper base on 3,111 words of people, without a beam search: 12.3 % with 700 ms, 11.6 % with 2 s and
windows that are filled.
"""

FLOAT_PCM = AudioFormat("pcm_f32le")
"""Mono float32 samples at 16 kHz."""

FILE_TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The temperatures of the decoding attempts of one window. Source: openai/whisper, whisper/transcribe.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionOptions(commands.Start):
    """What starts the session of a recording, and how the recording is decoded."""

    audio: AudioFormat = FLOAT_PCM
    interim: bool = False
    endpointing: commands.Endpointing = FILE_ENDPOINTING
    temperature: float = 0.0
    """The sampling temperature. 0 takes the likeliest words, with rising temperatures as a fallback."""
    best_of: int = 1
    """Decoding attempts at each temperature above 0; the likeliest one is kept."""
    falls_back: bool = True
    """Whether a text that repeats itself or is unlikely is decoded again at rising temperatures, at temperature 0.

    OpenAI documents this behaviour for its endpoint.
    """
    carries_context: bool = False
    """Show the model the text before each window. Windows are then decoded one after another, not side by side."""

    @property
    def sampling(self) -> api.Sampling:
        """The temperatures that the engine tries. The session knows the number of beams."""
        rises = self.temperature == 0 and self.falls_back
        temperatures = FILE_TEMPERATURES if rises else (self.temperature,)
        return api.Sampling(temperatures=temperatures, best_of=self.best_of)

    @property
    def start(self) -> commands.Start:
        """The command that starts the session of the recording."""
        return commands.Start(**{each.name: getattr(self, each.name) for each in fields(commands.Start)})


DEFAULT_OPTIONS = TranscriptionOptions()
