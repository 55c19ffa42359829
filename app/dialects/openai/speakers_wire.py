"""OpenAI's `diarized_json`: the known speakers of a form, and text by speaker as JSON objects.

Source: the types of openai 3.54 (`types/audio/transcription_diarized*.py`, `transcription_create_params.py`).
"""

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

from tutti_server.app.dialects.limits import MAX_SPEAKERS
from tutti_server.app.dialects.openai.form import Form, bad_value
from tutti_server.app.dialects.speaker_names import letters
from tutti_server.app.errors import RequestError
from tutti_server.app.files.call_record import CallRecord, Stretch, make_record
from tutti_server.app.voices.words_by_speaker import SpokenText

FORMAT = "diarized_json"
RECORD_FORMATS = ("call_record", "call_record_srt", "call_record_vtt")
"""Our extension: the record of a call, as JSON and as subtitles."""
FORMATS = (FORMAT, *RECORD_FORMATS)
"""The formats that name speakers."""
MAX_KNOWN = 4
"""The most known speakers of a request."""
MIN_REFERENCE_S, MAX_REFERENCE_S = 2.0, 10.0
"""The length of a reference, in seconds."""
MAX_CHANNELS = 8
"""The most channels of a recording whose names the client gives."""
REFERENCES = "known_speaker_references"
NAMES = "known_speaker_names"
CHANNEL_NAMES = "channel_names"
"""Our extension: each channel of the recording is a speaker, with this name."""
MAX = "max_speakers"
"""Our extension: the most speakers that are found."""


@dataclass(frozen=True, slots=True)
class KnownSpeaker:
    """A speaker that the client names."""

    name: str
    reference: bytes
    """A file of audio in which only this speaker speaks."""


def parse_known(form: Form, response_format: str) -> tuple[KnownSpeaker, ...]:
    """The known speakers of a form.

    Raises:
        RequestError: names and references do not fit together, or a reference is no data URL.
    """
    names, references = form.texts(NAMES), form.texts(REFERENCES)
    for name, values in ((NAMES, names), (REFERENCES, references)):
        _require_format(name, values, response_format)
    if len(names) != len(references) or len(names) > MAX_KNOWN:
        expected = f"as many references as names, at most {MAX_KNOWN}"
        message = f"{REFERENCES}: expected {expected}, got {len(references)} for {len(names)} names"
        raise RequestError(400, message, REFERENCES)
    if len(set(names)) != len(names):
        raise bad_value(NAMES, "names that differ", ", ".join(names))
    return tuple(KnownSpeaker(name, _data(url)) for name, url in zip(names, references, strict=True))


def parse_channel_names(form: Form, response_format: str, known: Sequence[KnownSpeaker]) -> tuple[str, ...]:
    """The names of the channels of a recording, whose speakers they are; none if the client gives none.

    Raises:
        RequestError: they are no such names, or stand beside other speakers.
    """
    names = form.texts(CHANNEL_NAMES)
    _require_format(CHANNEL_NAMES, names, response_format)
    if names and (known or len(names) > MAX_CHANNELS or len(set(names)) != len(names)):
        expected = f"at most {MAX_CHANNELS} names that differ, without {NAMES}"
        raise bad_value(CHANNEL_NAMES, expected, ", ".join(names))
    return names


def parse_max(form: Form, response_format: str, channel_names: Sequence[str]) -> int:
    """The most speakers that are found.

    Raises:
        RequestError: the number is wrong, or there is nothing that it could limit.
    """
    value = form.number(MAX, 0, 1, MAX_SPEAKERS)
    _require_format(MAX, (str(value),) if value else (), response_format)
    if value and channel_names:
        raise bad_value(MAX, f"none with {CHANNEL_NAMES}", str(value))
    return value or MAX_SPEAKERS


def _require_format(name: str, values: Sequence[str], response_format: str) -> None:
    if values and response_format not in FORMATS:
        raise RequestError(
            400, f"{name}: expected response_format {FORMAT} or {RECORD_FORMATS[0]}, got {response_format}", name
        )


def _data(url: str) -> bytes:
    head, comma, data = url.partition(",")
    try:
        if not (comma and head.startswith("data:") and head.endswith(";base64")):
            raise ValueError("no data URL")
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise bad_value(REFERENCES, "a data URL in base64, such as data:audio/wav;base64,...", url) from None


def label(speaker: int, names: Mapping[int, str], known: Collection[str] = ()) -> str:
    """The name of a known speaker; for others a letter in the order of their first words: A to Z, then AA and so on.

    A letter that is the name of a known speaker is left out.
    """
    if speaker in names:
        return names[speaker]
    rank = speaker - sum(each < speaker for each in names)
    taken = {*names.values(), *known}
    free = (letter for letter in map(letters, count()) if letter not in taken)
    return next(islice(free, rank, None))


@dataclass(frozen=True, slots=True)
class Spoken:
    """What was said in a file, by speaker."""

    texts: Sequence[SpokenText] = ()
    """The texts in the order of their times."""
    names: Mapping[int, str] = field(default_factory=dict)
    """The names of the known speakers that take part, by the numbers of the speakers."""
    known: Collection[str] = ()
    """The names of all known speakers, whether they take part or not: no one else has them."""


def segments(spoken: Spoken, has_words: bool) -> list[dict[str, Any]]:
    """Text by speaker, as segments of the answer and as events of a stream.

    Where words are asked for, each segment also has `words`, `language` and `confidence`: our extension.
    """
    return [
        {
            "type": "transcript.text.segment",
            "id": f"seg_{number}",
            "start": each.start_s,
            "end": each.end_s,
            "text": each.text,
            "speaker": label(each.speaker, spoken.names, spoken.known),
        }
        | (_words(each) if has_words else {})
        for number, each in enumerate(spoken.texts)
    ]


def _words(text: SpokenText) -> dict[str, Any]:
    confidences = [word.confidence for word in text.words]
    return {
        "language": text.language,
        "confidence": sum(confidences) / len(confidences) if confidences else 0.0,
        "words": [
            {"word": word.text, "start": word.start_s, "end": word.end_s, "confidence": word.confidence}
            for word in text.words
        ],
    }


def call_record(spoken: Spoken, duration_s: float) -> CallRecord:
    """The record of a call, from the text of its recording."""
    stretches = (
        Stretch(
            speaker=label(each.speaker, spoken.names, spoken.known),
            start_s=each.start_s,
            end_s=each.end_s,
            text=each.text,
            words=each.words,
            language=each.language,
            redactions=each.redactions,
        )
        for each in spoken.texts
    )
    return make_record(stretches, duration_s)
