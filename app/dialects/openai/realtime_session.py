"""The Realtime session of one connection: its settings, and its description in the shape that the client uses."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tutti_server.app.dialects.limits import MAX_SPEAKERS
from tutti_server.app.dialects.openai import realtime_options as options
from tutti_server.app.dialects.openai.realtime_fields import BadField, Warnings
from tutti_server.app.dialects.openai.realtime_options import Meant, RealtimeSettings
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.messages import commands
from tutti_server.engine import api


class RealtimeSession:
    """What is in force on one connection."""

    def __init__(
        self,
        id_: str,
        settings: RealtimeSettings,
        is_flat: bool,
        meant: Meant,
        tells_speakers: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin with the settings of the connection's URL.

        Args:
            id_: makes the ids of the session, its items and its events unique.
            is_flat: the client is known to use the older shape.
        """
        self.id = id_
        self.settings = settings
        self.is_flat = is_flat
        self._model = meant(None)
        self._tells_speakers = tells_speakers
        self._meant = meant
        self.is_started = False

    def start(self) -> commands.Start:
        """The command that starts the session. Only clients of the GA shape learn who speaks, in segments."""
        self.is_started = True
        wants_speakers = self.settings.wants_speakers and not self.is_flat and self._tells_speakers()
        start = self.settings.start()
        return replace(start, max_speakers=MAX_SPEAKERS, words=True) if wants_speakers else start

    def update(self, fields: object, is_flat_event: bool) -> Warnings:
        """Apply an update, which also shows the shape that the client uses. Returns warnings.

        Args:
            fields: the `session` object of the update.
            is_flat_event: the type of the update exists in the older shape only.

        Raises:
            BadField: the server cannot follow one of the settings; nothing has changed.
        """
        before = self.settings
        settings, warnings = options.updated(self.settings, fields, self._meant)
        name, before_name = ((each.served or self._model).name for each in (settings, before))
        if self.is_started and name != before_name:
            raise BadField("transcription.model", f"{before_name}, with which the session has started,", name)
        self.settings = settings
        wants_them_now = settings.wants_speakers and not before.wants_speakers
        if wants_them_now and (self.is_started or not self._tells_speakers()):
            why = "the session has started without it" if self.is_started else "this server cannot do it"
            message = f"speakers are not told apart: {why}"
            warnings = [*warnings, {"param": "transcription.model", "message": message}]
        is_flat = True if is_flat_event else options.is_flat(fields)
        if is_flat is not None:
            self.is_flat = is_flat
        return warnings

    def describe(self) -> dict[str, Any]:
        """The session as an object, in the client's shape."""
        describe = described_flat if self.is_flat else described
        return describe(self.settings, f"sess_{self.id}", self._model)


def described(settings: RealtimeSettings, session_id: str, model: api.ModelCard) -> dict[str, Any]:
    """A session as an object, in the GA shape."""
    source = {
        "format": _format(settings.audio),
        "transcription": _transcription(settings, model),
        "noise_reduction": None,
        "turn_detection": _turn_detection(settings),
    }
    return _head(session_id) | {"type": "transcription", "audio": {"input": source}, "include": _include(settings)}


def described_flat(settings: RealtimeSettings, session_id: str, model: api.ModelCard) -> dict[str, Any]:
    """A session as an object, in the older shape."""
    names = {audio: name for name, audio in options.FLAT_FORMATS.items()}
    return _head(session_id) | {
        "modalities": ["text"],
        # A format without a name in the older shape was set in the GA shape.
        "input_audio_format": names.get(settings.audio) or _format(settings.audio),
        "input_audio_transcription": _transcription(settings, model),
        "input_audio_noise_reduction": None,
        "turn_detection": _turn_detection(settings),
        "include": _include(settings),
    }


def _head(session_id: str) -> dict[str, Any]:
    return {"id": session_id, "object": "realtime.transcription_session"}


def _format(audio: AudioFormat) -> dict[str, Any]:
    kinds = {encoding: kind for kind, encoding in options.G711.items()}
    if audio.encoding in kinds:
        return {"type": kinds[audio.encoding]}
    return {"type": "audio/pcm", "rate": audio.sample_rate}


def _transcription(settings: RealtimeSettings, model: api.ModelCard) -> dict[str, Any]:
    transcription: dict[str, Any] = {
        "model": (settings.served or model).name,
        "language": settings.language,
        "prompt": settings.prompt,
    }
    if settings.languages:
        transcription["languages"] = list(settings.languages)
    return transcription | ({"keywords": list(settings.keywords)} if settings.keywords else {})


def _turn_detection(settings: RealtimeSettings) -> dict[str, Any] | None:
    if settings.is_manual:
        return None
    if settings.eagerness:
        return {"type": "semantic_vad", "eagerness": settings.eagerness}
    endpointing = settings.endpointing
    detection = {
        "type": "server_vad",
        "prefix_padding_ms": endpointing.padding_ms,
        "silence_duration_ms": endpointing.silence_ms,
    }
    return detection | ({} if endpointing.threshold is None else {"threshold": endpointing.threshold})


def _include(settings: RealtimeSettings) -> list[str]:
    choices = ((options.LOGPROBS, settings.has_logprobs), (options.WORDS, settings.has_words))
    return [name for name, is_on in choices if is_on]
