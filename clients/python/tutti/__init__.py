"""Python client of tutti, the streaming transcription service.

`connect` opens a session for live audio, `transcribe_file` sends a file, and `Transcript` collects the text of the
events; `tutti.sync` has the same without asyncio. The modules, from the bottom up: `errors`, `messages` (the JSON on
the wire), `options`, `handshake` (opens the WebSocket), `connection` (uses it), `continuity` and `outgoing` (what one
connection after another receives and is sent), `resumption` (replaces lost ones), `upload` (files over HTTP),
`session`, `sync`; beside them `audio` (WAV files, pace), `captions` and `subtitles`.
"""

from tutti import sync
from tutti.audio import Pace, WavFile, paced
from tutti.captions import Caption, Transcript
from tutti.errors import (
    AudioError,
    BadOption,
    BadURL,
    ConnectError,
    ConnectionLost,
    Overloaded,
    ProtocolError,
    Refused,
    SessionError,
    SessionStopped,
    TimedOut,
    TuttiError,
    Unauthorized,
    Unreachable,
)
from tutti.messages import (
    AudioFormat,
    Encoding,
    EndpointingMode,
    ErrorEvent,
    Event,
    Flushed,
    Interim,
    Lag,
    Limits,
    Reconnecting,
    Resume,
    Resumed,
    Segment,
    ServerWarning,
    SpeechStarted,
    Started,
    Stopped,
    Task,
    Turn,
    TurnKind,
    UnknownEvent,
    Utterance,
    Word,
    event_to_wire,
    parse_event,
)
from tutti.options import ConnectOptions, FileProgress, SessionOptions
from tutti.session import Session, connect, transcribe_file
from tutti.subtitles import to_srt, to_vtt

__version__ = "0.1.0"

__all__ = [
    "AudioError",
    "AudioFormat",
    "BadOption",
    "BadURL",
    "Caption",
    "ConnectError",
    "ConnectOptions",
    "ConnectionLost",
    "Encoding",
    "EndpointingMode",
    "ErrorEvent",
    "Event",
    "FileProgress",
    "Flushed",
    "Interim",
    "Lag",
    "Limits",
    "Overloaded",
    "Pace",
    "ProtocolError",
    "Reconnecting",
    "Refused",
    "Resume",
    "Resumed",
    "Segment",
    "ServerWarning",
    "Session",
    "SessionError",
    "SessionOptions",
    "SessionStopped",
    "SpeechStarted",
    "Started",
    "Stopped",
    "Task",
    "TimedOut",
    "Transcript",
    "Turn",
    "TurnKind",
    "TuttiError",
    "Unauthorized",
    "UnknownEvent",
    "Unreachable",
    "Utterance",
    "WavFile",
    "Word",
    "__version__",
    "connect",
    "event_to_wire",
    "paced",
    "parse_event",
    "sync",
    "to_srt",
    "to_vtt",
    "transcribe_file",
]
