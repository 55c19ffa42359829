"""Python client of tutti, the streaming transcription service.

`connect` opens a session for live audio, `transcribe_file` sends a file, and `Transcript` collects the text of the
events; `tutti.sync` has the same without asyncio. The modules, from the bottom up: `errors`, `fields`, `messages` (on
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
    RedactedKind,
    Redaction,
    Resume,
    Resumed,
    Room,
    RoomAddress,
    Segment,
    ServerWarning,
    Speakers,
    SpeakerSpan,
    SpeechStarted,
    Started,
    Stopped,
    Task,
    TextRules,
    Translation,
    Turn,
    TurnKind,
    UnknownEvent,
    Untranslated,
    Utterance,
    Word,
    event_to_wire,
    parse_event,
)
from tutti.options import ConnectOptions, FileProgress, SessionOptions
from tutti.session import Session, connect, transcribe_file
from tutti.speakers import SpeakerTimeline
from tutti.subtitles import to_srt, to_vtt

__version__ = "0.2.0"

__all__ = [
    "AudioError", "AudioFormat", "BadOption", "BadURL", "Caption", "ConnectError", "ConnectOptions", "ConnectionLost",
    "Encoding", "EndpointingMode", "ErrorEvent", "Event", "FileProgress", "Flushed", "Interim", "Lag", "Limits",
    "Overloaded", "Pace", "ProtocolError", "Reconnecting", "RedactedKind", "Redaction", "Refused", "Resume", "Resumed",
    "Room", "RoomAddress", "Segment", "ServerWarning", "Session", "SessionError", "SessionOptions", "SessionStopped",
    "SpeakerSpan", "SpeakerTimeline", "Speakers", "SpeechStarted", "Started", "Stopped", "Task", "TextRules",
    "TimedOut", "Transcript", "Translation", "Turn", "TurnKind", "TuttiError", "Unauthorized", "UnknownEvent",
    "Unreachable", "Untranslated", "Utterance", "WavFile", "Word", "__version__", "connect", "event_to_wire", "paced",
    "parse_event", "sync", "to_srt", "to_vtt", "transcribe_file",
]  # fmt: skip
