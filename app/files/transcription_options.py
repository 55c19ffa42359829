"""How a recording is transcribed."""

from dataclasses import dataclass, field

from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands
from tutti_server.app.text_rules.pipeline import TextRuleOptions
from tutti_server.engine import api

FILE_ENDPOINTING = commands.Endpointing(silence_ms=2000, max_utterance_s=300.0)
"""An utterance of a file ends at longer pauses than a live one, so that its windows hold more audio.

Word errors of Whisper base on 3,111 words of people, without a beam search: 12.3 % with 700 ms, 11.6 % with 2 s and
windows that are filled.
"""

FLOAT_PCM = AudioFormat("pcm_f32le")
"""Mono float32 samples at 16 kHz."""

RISING_TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The temperatures of the decoding attempts of one window. Source: openai/whisper, whisper/transcribe.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionOptions:
    """How a recording is decoded."""

    language: str | None = None
    """A language code; `None` detects the language."""
    languages: tuple[str, ...] = ()
    """The languages to detect one of; empty for all that the model knows."""
    locks_language: bool = False
    """Whether the language is detected once, at the beginning of the recording."""
    task: api.Task = "transcribe"
    prompt: str = ""
    """Text before the recording, or names that it may contain."""
    words: bool = False
    """Give the times of every word."""
    hotwords: tuple[str, ...] = ()
    """Names and terms to expect."""
    temperature: float = 0.0
    """The sampling temperature. 0 takes the likeliest words, with rising temperatures as a fallback."""
    best_of: int = 1
    """Decoding attempts at each temperature above 0; the likeliest one is kept."""
    beam_size: int | None = None
    """The beams at temperature 0; 1 decodes greedily, `None` is the operator's number."""
    falls_back: bool = True
    """Whether a text that repeats itself or is unlikely is decoded again at rising temperatures, at temperature 0.

    OpenAI documents this behaviour for its endpoint.
    """
    carries_context: bool = False
    """Show the model the text before each window. Windows are then decoded one after another, not side by side."""
    text_rules: TextRuleOptions = field(default_factory=TextRuleOptions)
    """What is done with the text."""
    endpointing: commands.Endpointing = FILE_ENDPOINTING
    audio_format: AudioFormat = FLOAT_PCM
    """The format of the samples or bytes."""

    @property
    def sampling(self) -> api.Sampling:
        """The temperatures that the engine tries. The session knows the number of beams."""
        rises = self.temperature == 0 and self.falls_back
        temperatures = RISING_TEMPERATURES if rises else (self.temperature,)
        return api.Sampling(temperatures=temperatures, best_of=self.best_of)

    @property
    def start(self) -> commands.Start:
        """The command that starts the session of the recording."""
        return commands.Start(
            audio=self.audio_format,
            language=self.language,
            languages=self.languages,
            locks_language=self.locks_language,
            task=self.task,
            interim=False,
            endpointing=self.endpointing,
            prompt=self.prompt,
            hotwords=self.hotwords,
            beam_size=self.beam_size,
            words=self.words,
            text_rules=self.text_rules,
        )


DEFAULT_OPTIONS = TranscriptionOptions()
