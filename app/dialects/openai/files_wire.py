"""OpenAI's file transcription: form fields to options, transcripts to response bodies, events to stream events."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tutti_server.app.dialects.checks import usable_hotwords
from tutti_server.app.dialects.json_text import read_object, write_large
from tutti_server.app.dialects.limits import (
    MAX_PADDING_MS,
    MAX_PROMPT_CHARS,
    MAX_SILENCE_MS,
    MAX_SPEAKERS,
    MIN_SILENCE_MS,
)
from tutti_server.app.dialects.openai import speakers_wire
from tutti_server.app.dialects.openai.form import Form, bad_value
from tutti_server.app.dialects.openai.speakers_wire import KnownSpeaker, Spoken, call_record, segments
from tutti_server.app.dialects.text_rules import parse_text_rules
from tutti_server.app.errors import BadMessage, RequestError
from tutti_server.app.files.call_rendering import as_cues, as_json
from tutti_server.app.files.subtitles import DEFAULT_LAYOUT, LAYOUT_LIMITS, CueLayout, cues, srt, vtt
from tutti_server.app.files.transcript import Transcript, as_warnings
from tutti_server.app.files.transcription_options import DEFAULT_OPTIONS, FILE_ENDPOINTING, TranscriptionOptions
from tutti_server.app.languages import LOCK, NAMES, joined, joint, known_among, language_of
from tutti_server.app.session.messages import commands, events
from tutti_server.app.text_rules.pipeline import TextRuleOptions
from tutti_server.engine import api

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
SUBTITLES = ("srt", "vtt", "call_record_srt", "call_record_vtt")
"""The formats of subtitles."""
TRACK_FORMATS = ("json", "verbose_json")
"""The formats that can hold the results of several tracks."""
TIMED_FORMATS = ("srt", "vtt", "verbose_json")
"""The formats that have the times of segments."""
STATES_PER_S = 50
"""Whisper's encoder makes one state of 20 ms of audio."""
MIN_PROBABILITY = 1e-6
"""A lower probability counts as this one, since a probability that was rounded to 0 has no logarithm."""
UNSET = -1
"""Stands for a number that the client left out."""
NOTHING = Spoken()


MAX_TRACKS = 16
"""The most audio tracks of a file of which all are transcribed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """The options of one file's transcription."""

    decoding: TranscriptionOptions = DEFAULT_OPTIONS
    """How the file is decoded, apart from what the formats need."""
    model: str | None = None
    """The name of the model that transcribes; `None` for the first one of the server."""
    track: str | None = None
    """Which audio track of the file: a number from 0, or a language; `None` for the default one."""
    has_all_tracks: bool = False
    """Each audio track of the file is transcribed, and has a result of its own."""
    response_format: str = "json"
    is_streamed: bool = False
    has_segments: bool = True
    """The answer lists segments with their times."""
    has_words: bool = False
    """The answer lists words with their times."""
    has_logprobs: bool = False
    known_speakers: tuple[KnownSpeaker, ...] = ()
    """The speakers that the client names; for `diarized_json`."""
    channel_names: tuple[str, ...] = ()
    """The speakers of the channels, where each channel has one; for `diarized_json`."""
    max_speakers: int = MAX_SPEAKERS
    """The most speakers of one channel; for `diarized_json`."""
    cue_layout: CueLayout = DEFAULT_LAYOUT
    """How much text a cue may have; for subtitles."""
    ignored: tuple[str, ...] = ()
    """Names of the form fields that had no effect."""

    @property
    def has_speakers(self) -> bool:
        """Whether the client wants to know who has said what."""
        return self.response_format in speakers_wire.FORMATS

    @property
    def needs_words(self) -> bool:
        """Whether the engine must time words; formats with segments need it too, which begin at their words."""
        return self.has_words or self.has_logprobs or self.has_speakers or self.response_format in TIMED_FORMATS


def parse_options(
    items: Iterable[tuple[str, str]],
    task: api.Task,
    known_languages: Collection[str] = NAMES,
    tells_speakers: bool = False,
) -> FileOptions:
    """The options in the text fields of a form.

    Args:
        known_languages: the codes of the languages that the model knows.
        tells_speakers: whether the server has a speaker network.

    Raises:
        RequestError: a value is wrong, or asks for something that this server does not do.
    """
    form = Form(items)
    # The endpoint chooses the model. A header of the answer names it.
    form.text("model")
    response_format = _response_format(form, task, tells_speakers)
    is_streamed = form.boolean("stream")
    granularities = _granularities(form, response_format)
    if is_streamed and response_format in speakers_wire.RECORD_FORMATS:
        message = f"stream: expected none with response_format {response_format}, which is made at the end"
        raise RequestError(400, message, "stream")
    if is_streamed and response_format not in ("verbose_json", speakers_wire.FORMAT):
        # There are three kinds of streams: text alone, and text with the segments of one of these.
        if response_format not in ("json", "text"):
            form.ignore("response_format")
        response_format = "json"
    if not tells_speakers:
        _refuse_speakers(form)
    known_speakers = speakers_wire.parse_known(form, response_format)
    channel_names = speakers_wire.parse_channel_names(form, response_format, known_speakers)
    max_speakers = speakers_wire.parse_max(form, response_format, channel_names)
    language, languages = _languages(form, known_languages)
    temperature = form.number("temperature", 0.0, 0.0, 1.0)
    # Our extension. It is checked when the tracks of the file are known.
    track = (form.text("track") or "").strip() or None
    has_logprobs, carries_context = _logprobs(form, response_format), form.boolean("condition_on_previous_text")
    decoding = TranscriptionOptions(
        task=task,
        language=None if language == LOCK else language,
        languages=languages,
        locks_language=language == LOCK,
        prompt=_prompt(form),
        hotwords=_hotwords(form),
        temperature=temperature,
        best_of=form.number("best_of", 1, 1, api.MAX_BEST_OF),
        beam_size=_beam_size(form, temperature),
        falls_back=form.boolean("temperature_fallback", True),
        carries_context=carries_context,
        endpointing=_endpointing(form),
        text_rules=_text_rules(form, has_logprobs=has_logprobs, carries_context=carries_context),
    )
    return FileOptions(
        decoding=decoding,
        track=track,
        has_all_tracks=_has_all_tracks(form, track, response_format, is_streamed),
        response_format=response_format,
        is_streamed=is_streamed,
        has_segments="segment" in granularities or not granularities,
        has_words="word" in granularities,
        has_logprobs=has_logprobs,
        known_speakers=known_speakers,
        channel_names=channel_names,
        max_speakers=max_speakers,
        cue_layout=_cue_layout(form, response_format),
        ignored=form.ignored,
    )


def _has_all_tracks(form: Form, track: str | None, response_format: str, is_streamed: bool) -> bool:
    """Whether the client asks for each track on its own. OpenAI has no such option."""
    value = form.text("tracks")
    if value is None:
        return False
    if value.strip().lower() != "all":
        raise bad_value("tracks", "all, or the field track for one of them", value)
    if track is not None:
        raise RequestError(400, "tracks: expected no field track with it, as each names what is transcribed", "tracks")
    if is_streamed or response_format not in TRACK_FORMATS:
        got = "a stream" if is_streamed else response_format
        expected = f"response_format {' or '.join(TRACK_FORMATS)} without stream"
        raise RequestError(400, f"tracks: expected {expected} with it, got {got}", "tracks")
    return True


def _cue_layout(form: Form, response_format: str) -> CueLayout:
    """Our extension, with the names of openai/whisper's command line."""
    chosen: dict[str, int] = {}
    for name, (least, most) in LAYOUT_LIMITS.items():
        value = form.number(name, UNSET, least, most)
        if value == UNSET:
            continue
        if response_format not in SUBTITLES:
            expected = f"response_format {', '.join(SUBTITLES[:-1])} or {SUBTITLES[-1]} with it"
            raise RequestError(400, f"{name}: expected {expected}, got {response_format}", name)
        chosen[name] = value
    return CueLayout(**chosen)


def _beam_size(form: Form, temperature: float) -> int | None:
    """The number of beams; `None` where the client names none. Above temperature 0 there are no beams."""
    beam_size = form.number("beam_size", 0, 1, api.MAX_BEAM_SIZE)
    if beam_size > 1 and temperature > 0:
        raise bad_value("beam_size", "1 with a temperature above 0", str(beam_size))
    return beam_size or None


def _response_format(form: Form, task: api.Task, tells_speakers: bool) -> str:
    value = form.text("response_format") or "json"
    with_speakers = speakers_wire.FORMATS if task == "transcribe" else ()
    if value in with_speakers and not tells_speakers:
        message = f"response_format: {value} is not offered, since this server does not tell speakers apart"
        raise RequestError(400, message, "response_format", "unsupported_value")
    offered = (*FORMATS, *with_speakers) if tells_speakers else FORMATS
    if value not in offered:
        raise bad_value("response_format", f"one of {', '.join(offered)}", value)
    return value


def _granularities(form: Form, response_format: str) -> frozenset[str]:
    name = "timestamp_granularities"
    granularities = form.choices(name, ("segment", "word"))
    if granularities and response_format not in ("verbose_json", speakers_wire.FORMAT):
        expected = f"response_format verbose_json or {speakers_wire.FORMAT}"
        raise RequestError(400, f"{name}: expected {expected}, got {response_format}", name)
    return granularities


def _logprobs(form: Form, response_format: str) -> bool:
    if not form.choices("include", ("logprobs",)):
        return False
    if response_format != "json":
        raise RequestError(400, f"include: expected response_format json, got {response_format}", "include")
    return True


def _text_rules(form: Form, *, has_logprobs: bool, carries_context: bool) -> TextRuleOptions:
    """Read the field `text_rules`, our extension: the object that `start` of the native protocol has.

    Log-probabilities are those of text without rules, and text that is to be redacted is not kept for later windows.
    Fields `text_rules[key]`, as OpenAI's SDKs make of an object, are refused: what they ask for would not be done.
    """
    if keys := form.keys_of("text_rules"):
        raise bad_value("text_rules", "one field with a JSON object", keys[0])
    value = form.text("text_rules")
    if not value:
        return TextRuleOptions()
    try:
        fields = read_object(value)
    except BadMessage:
        raise bad_value("text_rules", "a JSON object", value) from None
    rules = parse_text_rules(fields, lambda name, expected, got: bad_value(name, expected, str(got)))
    if rules and has_logprobs:
        raise bad_value("include", "none with text_rules", "logprobs")
    if rules.redacts and carries_context:
        raise bad_value("condition_on_previous_text", "false where text_rules redact", "true")
    return rules


def _refuse_speakers(form: Form) -> None:
    for name in ("known_speaker_names", "known_speaker_references"):
        if form.texts(name):
            message = f"{name}: not offered, since this server does not tell speakers apart"
            raise RequestError(400, message, name, "unsupported_parameter")


def _languages(form: Form, known: Collection[str]) -> tuple[str | None, tuple[str, ...]]:
    """A language code or `LOCK`, from any usual spelling; and the possible languages that the model knows.

    `languages` are hints. They are ignored beside a language, and those that the model does not know are ignored, too.
    """
    language = language_of(form.text("language"), known)
    hints = form.texts("languages")
    possible = known_among(hints, known)
    if hints and not possible:
        raise bad_value("languages", f"some of {', '.join(known)}", hints[0])
    if language not in (None, LOCK):
        possible = ()
    if any(language_of(each, known) not in possible for each in hints):
        form.ignore("languages")
    return language, possible


def _prompt(form: Form) -> str:
    prompt = form.text("prompt") or ""
    if len(prompt) > MAX_PROMPT_CHARS:
        message = f"prompt: expected at most {MAX_PROMPT_CHARS} characters, got {len(prompt)}"
        raise RequestError(400, message, "prompt")
    return prompt


def _hotwords(form: Form) -> tuple[str, ...]:
    """Hotwords, from OpenAI's list `keywords`, or from `hotwords` with commas, as other Whisper servers expect them.

    `keywords` are hints: those beyond the limits are left out, and the field is reported as ignored.
    """
    keywords = form.texts("keywords")
    hotwords = [*usable_hotwords(keywords)]
    if len(hotwords) < len(keywords):
        form.ignore("keywords")
    hotwords += (word for each in (form.text("hotwords") or "").split(",") if (word := each.strip()))
    longest = max((len(word.encode()) for word in hotwords), default=0)
    if len(hotwords) > api.MAX_HOTWORDS or longest > api.MAX_HOTWORD_BYTES:
        expected = f"at most {api.MAX_HOTWORDS} of at most {api.MAX_HOTWORD_BYTES} bytes"
        message = f"hotwords: expected {expected}, got {len(hotwords)}, the longest of {longest} bytes"
        raise RequestError(400, message, "hotwords")
    return tuple(hotwords)


def _endpointing(form: Form) -> commands.Endpointing:
    """The choices in `chunking_strategy`. Audio is always cut by voice activity, so `auto` changes nothing."""
    name = "chunking_strategy"
    strategy = form.nested(name)
    if strategy in (None, "auto"):
        return FILE_ENDPOINTING
    if isinstance(strategy, str):
        raise bad_value(name, "auto or an object of type server_vad", strategy)
    strategy.choice(f"{name}[type]", ("server_vad",), "missing")
    usual = FILE_ENDPOINTING
    silence_ms = strategy.number(f"{name}[silence_duration_ms]", usual.silence_ms, MIN_SILENCE_MS, MAX_SILENCE_MS)
    padding_ms = strategy.number(f"{name}[prefix_padding_ms]", usual.padding_ms, 0, MAX_PADDING_MS)
    threshold = strategy.number(f"{name}[threshold]", float(UNSET), 0, 1)
    for each in strategy.ignored:
        form.ignore(each)
    chosen = replace(usual, silence_ms=silence_ms, padding_ms=padding_ms)
    return chosen if threshold == UNSET else replace(chosen, threshold=threshold)


def response_body(transcript: Transcript, options: FileOptions, spoken: Spoken = NOTHING) -> tuple[str, str]:
    """The body of an answer that is not streamed, and its media type. For long recordings it takes a second.

    `spoken` is the text by speaker, for the formats that name speakers.
    """
    match options.response_format:
        case "text":
            body = transcript.text + "\n", "text/plain"
        case "srt":
            body = srt(cues(transcript.segments, options.cue_layout)), "text/plain"
        case "vtt":
            body = vtt(cues(transcript.segments, options.cue_layout)), "text/vtt"
        case "verbose_json":
            body = write_large(_verbose(transcript, options)), "application/json"
        case speakers_wire.FORMAT:
            body = write_large(_diarized(transcript, options, segments(spoken, options.has_words))), "application/json"
        case _ if options.has_speakers:
            body = _recorded(transcript, options, spoken)
        case _:
            body = write_large(_plain(transcript, options)), "application/json"
    return body


@dataclass(frozen=True, slots=True)
class TrackTranscript:
    """The transcript of one audio track of a file."""

    number: int
    language: str | None
    """The language that the file names for the track, as it writes it."""
    transcript: Transcript


def tracks_body(tracks: Sequence[TrackTranscript], options: FileOptions) -> tuple[str, str]:
    """The body of an answer with all tracks, and its media type: `tracks` has a whole answer for each."""
    make = _verbose if options.response_format == "verbose_json" else _plain
    answers = [
        {"track": each.number, "track_language": each.language} | make(each.transcript, options) for each in tracks
    ]
    return write_large({"tracks": answers}), "application/json"


def _recorded(transcript: Transcript, options: FileOptions, spoken: Spoken) -> tuple[str, str]:
    record = call_record(spoken, transcript.audio_s)
    match options.response_format:
        case "call_record_srt":
            return srt(as_cues(record, options.cue_layout, names_speakers=True)), "text/plain"
        case "call_record_vtt":
            return vtt(as_cues(record, options.cue_layout)), "text/vtt"
        case _:
            more = {"uncovered": transcript.uncovered, "usage": _duration(transcript)}
            return write_large(as_json(record) | more | as_warnings(transcript.notices)), "application/json"


def _plain(transcript: Transcript, options: FileOptions) -> dict[str, Any]:
    languages = dict.fromkeys(segment.language for segment in transcript.segments if segment.language)
    answer: dict[str, Any] = {
        "text": transcript.text,
        "usage": _duration(transcript),
        "languages": [{"code": code} for code in languages],
    }
    if options.has_logprobs:
        stream = TextStream(options)
        for segment in transcript.segments:
            stream.push(segment)
        answer["logprobs"] = stream.logprobs
    return answer | as_warnings(transcript.notices)


def _diarized(transcript: Transcript, options: FileOptions, spoken: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "task": options.decoding.task,
        "duration": transcript.audio_s,
        # Of several channels, utterances come in the order in which they end.
        "text": joined(each["text"] for each in spoken) if options.channel_names else transcript.text,
        "segments": list(spoken),
        "usage": _duration(transcript),
    } | as_warnings(transcript.notices)


def _verbose(transcript: Transcript, options: FileOptions) -> dict[str, Any]:
    task = options.decoding.task
    language = "en" if task == "translate" else transcript.language or options.decoding.language
    answer: dict[str, Any] = {
        "task": task,
        "language": NAMES.get(language, language) if language else "",
        "duration": transcript.audio_s,
        "text": transcript.text,
        "usage": _duration(transcript),
        # Not in OpenAI's API: where there is speech without text, in seconds.
        "uncovered": transcript.uncovered,
    } | as_warnings(transcript.notices)
    if options.has_segments:
        answer["segments"] = [_segment(segment) for segment in transcript.segments]
    if options.has_words:
        answer["words"] = [
            {"word": word.text, "start": word.start_s, "end": word.end_s}
            for segment in transcript.segments
            for word in segment.words
        ]
    return answer


def _segment(segment: events.Segment) -> dict[str, Any]:
    source = segment.source
    return {
        "id": segment.id,
        # Where the segment's window begins, in mel frames of 10 ms.
        "seek": round(segment.window_start_s * 100),
        "start": segment.start_s,
        "end": segment.end_s,
        "text": segment.text,
        "tokens": list(source.tokens),
        "temperature": source.temperature,
        "avg_logprob": source.avg_logprob,
        "compression_ratio": source.compression_ratio,
        "no_speech_prob": source.no_speech_prob,
        # Not in OpenAI's API: a file may have several languages.
        "language": segment.language,
    } | ({"redactions": [asdict(each) for each in segment.redactions]} if segment.redactions else {})


def _duration(transcript: Transcript) -> dict[str, Any]:
    return {"type": "duration", "seconds": round(transcript.audio_s)}


class TextStream:
    """Makes the events of a streamed answer: a delta for each segment, then the whole text and the usage.

    With `verbose_json`, each delta is followed by its segment. A segment with an empty text is speech without text.
    """

    def __init__(self, options: FileOptions) -> None:
        self.logprobs: list[dict[str, Any]] = []
        self._options = options
        self._texts: list[str] = []
        self._languages: dict[str, None] = {}
        self._notices: list[events.Notice] = []
        self._utterance: int | None = None
        self._n_tokens = 0

    def push(self, event: events.Event) -> list[dict[str, Any]]:
        """The stream events for an event of the session."""
        is_verbose = self._options.response_format == "verbose_json"
        match event:
            case events.Segment():
                segments = [_segment_event(event, self._options.has_words)] if is_verbose else []
                return [self._delta(event), *segments]
            case events.Utterance() if is_verbose:
                return [_uncovered_event(event.utterance, span) for span in event.uncovered]
            case events.Notice():
                self._notices.append(event)
                return []
            case events.Stopped():
                times = {"duration": event.audio_s, "speech_duration": event.speech_s, "words": event.words}
                lost = [each.lost for each in self._notices if each.lost and is_verbose]
                done = self._done(event.audio_s) | (times if is_verbose or self._options.has_words else {})
                return [*(_uncovered_event(self._utterance or 0, span) for span in lost), done]
            case _:
                return []

    def by_speaker(self, spoken: Spoken) -> list[dict[str, Any]]:
        """The stream events for the text by speaker, which come before the last event."""
        made = segments(spoken, self._options.has_words)
        if self._options.channel_names:
            # The deltas of several channels come as they are decoded; the whole text is in the order of time.
            self._texts = [joined(each["text"] for each in made)]
        return made

    def _delta(self, segment: events.Segment) -> dict[str, Any]:
        is_next = self._utterance is not None and segment.utterance != self._utterance
        lead = joint(self._texts[-1], segment.text) if is_next else ""
        self._utterance = segment.utterance
        self._texts.append(lead + segment.text)
        self._n_tokens += len(segment.source.tokens)
        if segment.language:
            self._languages[segment.language] = None
        delta: dict[str, Any] = {"type": "transcript.text.delta", "delta": lead + segment.text}
        if self._options.has_logprobs:
            delta["logprobs"] = _logprobs_of(segment, lead)
            self.logprobs += delta["logprobs"]
        return delta

    def _done(self, audio_s: float) -> dict[str, Any]:
        n_states = round(audio_s * STATES_PER_S)
        done: dict[str, Any] = {
            "type": "transcript.text.done",
            "text": "".join(self._texts),
            "usage": {
                "type": "tokens",
                "input_tokens": n_states,
                "input_token_details": {"audio_tokens": n_states},
                "output_tokens": self._n_tokens,
                "total_tokens": n_states + self._n_tokens,
            },
            "languages": [{"code": code} for code in self._languages],
        }
        if self._options.has_logprobs:
            done["logprobs"] = self.logprobs
        return done | as_warnings(self._notices)


def _segment_event(segment: events.Segment, has_words: bool) -> dict[str, Any]:
    """A segment as OpenAI's stream event of that name, with the fields of a segment of `verbose_json` and some more."""
    more: dict[str, Any] = {"utterance": segment.utterance, "confidence": segment.confidence}
    if has_words:
        more["words"] = [
            {"word": word.text, "start": word.start_s, "end": word.end_s, "confidence": word.confidence}
            for word in segment.words
        ]
    return {"type": "transcript.text.segment", **_segment(segment), **more}


def _uncovered_event(utterance: int, span: tuple[float, float]) -> dict[str, Any]:
    start_s, end_s = span
    return {"type": "transcript.text.segment", "start": start_s, "end": end_s, "text": "", "utterance": utterance}


def _logprobs_of(segment: events.Segment, lead: str) -> list[dict[str, Any]]:
    """An entry for each word, with the mean probability of its tokens. They join to `lead` and the segment's text."""
    entries: list[dict[str, Any]] = []
    for word in segment.source.words or ():
        text = word.text if entries or segment.text.startswith(" ") else lead + word.text.lstrip()
        logprob = round(math.log(max(word.probability, MIN_PROBABILITY)), 4)
        entries.append({"token": text, "logprob": logprob, "bytes": list(text.encode())})
    return entries


def sse_frame(message: dict[str, Any]) -> str:
    """A message as a server-sent event."""
    return f"data: {write_large(message)}\n\n"
