"""One client's session, without I/O: commands and engine events go in, effects come out.

It has no socket, no task and no clock. It counts time in samples received, so that the same audio gives the same
effects however it was cut. `app/session/engine_driver.py`, the only module of this package with asyncio,
performs the effects.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import assert_never

from tutti_server.app.errors import (
    CLOSE_DONE,
    CLOSE_DRAINING,
    CLOSE_OUR_FAULT,
    CLOSE_OVERLOADED,
    IDLE,
    RESUMABLE_CLOSE_CODES,
    BadMessage,
    BadStart,
    IdleTimeout,
    LimitExceeded,
    SessionError,
)
from tutti_server.app.languages import known_among, language_of
from tutti_server.app.media.pcm import AudioFormat
from tutti_server.app.session.audio_intake import AudioIntake
from tutti_server.app.session.channel import Channel
from tutti_server.app.session.core.effects import Effect
from tutti_server.app.session.core.final_beams import FinalBeams, spare_beams, with_beams
from tutti_server.app.session.core.options import ChannelOptions, SessionConfig
from tutti_server.app.session.core.port import PendingFlush, RequestKind, SessionPort
from tutti_server.app.session.decoding.translations import targets_of
from tutti_server.app.session.messages import commands, events
from tutti_server.app.session.messages.continuation import find_start
from tutti_server.app.session.messages.states import State, already_started, must_carry_out
from tutti_server.app.session.observers.ruled_text import RuledText
from tutti_server.app.session.observers.speaker_labels import SpeakerLabels
from tutti_server.app.session.observers.speaker_stretches import SpeakersFound, SpeakerTeller
from tutti_server.app.session.speech.endpointing import UpcomingFrames
from tutti_server.app.session.speech.turn_taking import ADAPTIVE_MIN_SILENCE_MS, ADAPTIVE_SILENCE_MS
from tutti_server.app.session.text.language_choice import LanguageRequest
from tutti_server.engine import api
from tutti_server.engine.api import SAMPLE_RATE
from tutti_server.engine.errors import EngineError, EngineOverloaded


class Session:
    """Feed it with `receive` and `engine_event`; perform the effects that they return, in order."""

    def __init__(self, session_id: str, model: api.ModelInfo, config: SessionConfig) -> None:
        self.id = session_id
        self.limits = config.limits
        self.continues_earlier = False
        """Whether the client continues a session that it lost."""
        self.may_be_continued = False
        """Whether the client will continue this session if the server ends it."""
        self._model = model
        self.config = config
        """The operator's settings."""
        self._state = State.NEW
        self._port = SessionPort(session_id, config.final_priority)
        self._options: ChannelOptions | None = None
        """`None` before the start, as is `_intake`."""
        self._intake: AudioIntake | None = None
        self._reason_to_end: SessionError | None = None
        """Why the server ends the session, if it does."""

    def use(self, model: api.ModelInfo) -> None:
        """Use another model than the one with which the session was made. Called before the start."""
        assert not self.is_open, "windows of one session need one model"
        self._model = model

    # What the shell may ask.

    @property
    def is_open(self) -> bool:
        """Whether the session takes audio."""
        return self._state is State.OPEN

    @property
    def is_closed(self) -> bool:
        """Whether the session is over."""
        return self._state is State.CLOSED

    @property
    def is_stopping(self) -> bool:
        """Whether no more audio is expected, but final texts are still to come."""
        return self._state in (State.STOPPING, State.ENDING)

    @property
    def audio_format(self) -> AudioFormat | None:
        """The present format of the client's audio; `None` before the start."""
        return self._intake.audio_format if self._intake else None

    @property
    def max_utterance_s(self) -> float:
        """The longest utterance, in seconds; 0 before the start."""
        return self._options.start.endpointing.max_utterance_s if self._options else 0.0

    @property
    def audio_s(self) -> float:
        """The seconds of audio that were processed."""
        return self._intake.position / SAMPLE_RATE if self._intake else 0.0

    @property
    def now_s(self) -> float:
        """The end of the audio processed, in seconds on the session's timeline."""
        return self._port.from_s + self.audio_s

    @property
    def bytes_per_s(self) -> int:
        """Bytes that make a second of the client's audio; 0 before the start."""
        return self._intake.bytes_per_s if self._intake else 0

    @property
    def backlog(self) -> int:
        """Ended windows of all channels that wait for the engine; the shell stops reading when there are many.

        Windows without speech only wait for earlier ones and are not counted. Each follows one that is counted, so
        they can no more than double what the session holds.
        """
        return sum(channel.finals.n_to_decode for channel in self._intake.channels) if self._intake else 0

    def acknowledged(self) -> tuple[float, ...]:
        """Return for each channel the time before which no more text comes, in seconds; none of them ever decreases."""
        return self._port.acknowledged().until_s

    # What happens to it.

    def decode_ahead(self, data: bytes) -> list[UpcomingFrames]:
        """Turn bytes into samples. The next `Audio`, even one without data, or the end of the session processes them.

        In between, the shell may prepare the detectors by `SessionConfig.detect_ahead`. A session that is not open
        takes no audio, and returns nothing.
        """
        return self._intake.decode_ahead(data) if self._intake and self.is_open else []

    def receive(self, command: commands.Command) -> list[Effect]:
        """Carry out a command. Something wrong with it is answered with a `Failure`; a fatal one ends the session."""
        try:
            if must_carry_out(command, self._state):
                self._carry_out(command)
        except SessionError as error:
            self._fail(error)
        return self._port.pop_effects()

    def engine_event(self, request_id: int, event: api.EngineEvent) -> list[Effect]:
        """Process an event of the window that was submitted under this id."""
        request = self._port.requests.get(request_id)
        if request is None:
            return []
        if api.is_terminal(event):
            del self._port.requests[request_id]
        elif isinstance(event, api.DoneEvent):
            # The engine also translates this window: later events are the translation's. This event is the text's.
            assert self._intake
            translations = self._intake.channels[request.owner.channel].finals.translations
            self._port.requests[request_id] = replace(request, kind=RequestKind.TRANSLATION, owner=translations)
        if request.kind is RequestKind.INTERIM and isinstance(event, api.DoneEvent):
            assert self._options
            self._options.sampling.note_interim(event.timing)
        request.owner.on_engine_event(request, event)
        self._answer()
        return self._port.pop_effects()

    def turn_scored(self, channel: int, audio_end: int, probability: float) -> list[Effect]:
        """Process the answer to a `ScoreTurn`; one for a pause that is over changes nothing.

        Args:
            audio_end: position after the audio that was scored.
            probability: that the turn has ended, 0 to 1.
        """
        if self._intake and self.is_open:
            self._intake.channels[channel].turn_scored(audio_end, probability)
            self._answer()
        return self._port.pop_effects()

    def translated(self, request_id: int, text: str, failure: str = "") -> list[Effect]:
        """Process the answer to a `Translate`: the translation, or why there is none."""
        on_translated = self._port.translating.pop(request_id, None)
        if on_translated:
            on_translated(request_id, text, failure)
            self._answer()
        return self._port.pop_effects()

    def engine_error(self, request_id: int, error: EngineError | SessionError) -> list[Effect]:
        """The engine could not accept or finish a window.

        If it was overloaded or too slow, an interim or a re-decode is dropped; a translation is, whatever the error.
        Any other error ends the session.
        """
        may_drop = isinstance(error, EngineOverloaded | SessionError)
        if isinstance(error, EngineError):
            close_code = CLOSE_OVERLOADED if isinstance(error, EngineOverloaded) else CLOSE_OUR_FAULT
            error = SessionError(error.code, str(error), close_code)
        request = self._port.requests.pop(request_id, None)
        if request is None:
            return []
        if request.kind is RequestKind.TRANSLATION or (may_drop and request.kind is not RequestKind.FINAL):
            request.owner.on_dropped(request)
            self._answer()
        else:
            self._fail(error)
        return self._port.pop_effects()

    def engine_stalled(self, request_id: int, waited_s: float) -> list[Effect]:
        """The engine has not finished a window in time, and the shell does not wait for it any longer.

        What can be dropped is. Without a final text the session ends; the last utterances tell the client from where on
        to send its audio to another server.
        """
        message = f"no final text within {waited_s:g} s; resume from resume_from_s, on another server if there is one"
        return self.engine_error(request_id, SessionError("engine_stalled", message, CLOSE_OUR_FAULT))

    def fail(self, error: SessionError) -> list[Effect]:
        """The shell or the dialect has found something wrong with what the client did."""
        if not self.is_closed:
            if isinstance(error, BadStart) and self._state is not State.NEW:
                error = already_started()
            self._fail(error)
        return self._port.pop_effects()

    def end(self, reason: SessionError) -> list[Effect]:
        """End the session, but first make final what it has received; the client gets the reason last.

        A client that was silent for too long and resumes keeps its open utterances: silence may come from its network.
        """
        if isinstance(reason, IdleTimeout) and self.may_be_continued and self.is_open:
            message = f"{reason.message}; resume when there is something to send"
            return self.fail(SessionError(IDLE, message, CLOSE_OVERLOADED))
        if self._state is State.NEW:
            self._fail(reason)
        elif self._state in (State.OPEN, State.STOPPING):
            self._reason_to_end = reason
            self._stop(State.ENDING)
        return self._port.pop_effects()

    def drain(self, *, at_once: bool = False) -> list[Effect]:
        """The server shuts down: end the session, `at_once` without final texts, and send the client elsewhere."""
        if at_once:
            message = "the server is going down at once; reconnect elsewhere"
            return self.fail(SessionError("draining", message, CLOSE_DRAINING))
        if self._state is State.STOPPING:
            return []
        if self.may_be_continued:
            return self.fail(SessionError("draining", "the server is going down; resume elsewhere", CLOSE_DRAINING))
        message = "the server is going down; what was heard is final; reconnect elsewhere"
        return self.end(SessionError("draining", message, CLOSE_DRAINING))

    # Commands.

    def _carry_out(self, command: commands.Command) -> None:
        if isinstance(command, commands.Start):
            self._start(command)
            return
        intake = self._intake
        assert intake
        match command:
            case commands.Audio(data):
                intake.feed(data)
            case commands.Flush():
                self._flush(command, intake)
            case commands.Discard():
                intake.drain()
                for channel in intake.channels:
                    channel.discard()
            case commands.Configure():
                assert self._options
                known = _notices(self._options.start.endpointing, self.config)
                self._options = _changed_options(self._options, command, self._model)
                if self._port.ruled_text:
                    self._port.ruled_text.configure(wants_words=command.words)
                intake.configure(command.audio, self._options)
                for notice in _notices(command.endpointing, self.config):
                    if notice not in known:
                        self._port.send(notice)
            case commands.Stop():
                self._stop(State.STOPPING)
            case commands.Keepalive():
                pass
            case _:
                assert_never(command)

    def _flush(self, flush: commands.Flush, intake: AudioIntake) -> None:
        if len(self._port.flushes) >= commands.MAX_PENDING_FLUSHES:
            message = f"flush: {commands.MAX_PENDING_FLUSHES} flushes wait for their answers"
            raise LimitExceeded("too_many_flushes", message)
        intake.drain()
        self._port.end_run()
        channels = [each for each in intake.channels if flush.channel in (None, each.number)]
        for channel in channels:
            channel.flush(flush.id)
        self._port.flushes.append(PendingFlush(flush.id, [(each.finals, each.finals.n_added) for each in channels]))
        self._answer()

    def _start(self, start: commands.Start) -> None:
        language = _language_request(start, self._model, BadStart)
        if start.task not in self._model.tasks:
            raise BadStart("task", f"one of {', '.join(self._model.tasks)} with this model", start.task)
        if start.interim_words and not (start.interim and start.words):
            raise BadStart("interim_words", "true only with interim and words", start.interim_words)
        self.continues_earlier = start.resume is not None
        self.may_be_continued = start.resumes
        targets = targets_of(start, self._model, self.config.translator)
        begin = find_start(start.resume, start.audio.n_transcribed, (*targets.by_engine, *targets.by_service))
        self._port.from_s = begin.from_s
        self._port.own_from_s = self._port.own_until_s = begin.resumed_at_s
        self._port.speakers = _speaker_labels(start, self.config.speaker_teller, begin.from_s)
        start = replace(
            start,
            text_rules=start.text_rules.with_redaction(self.config.redact),
            endpointing=_with_mode(start.endpointing, self._model, self.config),
        )
        self._port.ruled_text = _ruled_text(start, language, self._model)
        self._options = options = ChannelOptions(
            # The text of a lost session need not stay in memory.
            start=replace(start, resume=None),
            config=self.config,
            language=language,
            targets=targets,
            sampling=_final_beams(start, self.config, self._model),
        )
        channels = [
            Channel(number, self._port, self.config.make_detector(), options, channel_start)
            for number, channel_start in enumerate(begin.channels)
        ]
        self._port.channels += channels
        self._intake = AudioIntake(start.audio, channels, self._port)
        self._state = State.OPEN
        notices = (*start.notices, *_notices(start.endpointing, self.config))
        self._port.send(events.Started(self.id, self._model.name, self.limits, notices))
        for earlier in begin.untranslated:
            # The lost session may have had another model: a language that this one does not know is detected.
            known = known_among((earlier.language or "",), self._model.languages)
            known_earlier = replace(earlier, language=known[0] if known else None)
            channels[earlier.channel].earlier.add(known_earlier, begin.from_s)

    # Ends.

    def _stop(self, state: State) -> None:
        """Receive no more audio; the session ends when all of its text is final."""
        was_open, self._state = self.is_open, state
        if was_open and self._intake:
            self._intake.finish()
            self._port.end_run()
        self._answer()

    def _answer(self) -> None:
        """Answer the flushes whose audio is final; end a stopping session when all of its audio is."""
        self._port.answer_flushes()
        finals = [channel.finals for channel in self._intake.channels] if self._intake else []
        if not self.is_stopping or any(finals) or any(each.translations.is_open for each in finals):
            return
        if self._port.await_speakers():
            return
        if self._reason_to_end:
            self._fail(self._reason_to_end)
            return
        speech_s = sum(each.speech_samples for each in finals) / SAMPLE_RATE
        n_words = sum(each.n_words for each in finals)
        self._port.send(events.Stopped(round(self.audio_s, 3), round(speech_s, 3), n_words))
        self._state = State.CLOSED
        self._port.close(CLOSE_DONE, "done")

    def _fail(self, error: SessionError) -> None:
        """Report an error; a fatal one ends the session with the text that was sent or stable.

        It ends no utterance if the client goes on with them in another session.
        """
        goes_on = self.may_be_continued and error.close_code in RESUMABLE_CLOSE_CODES
        if error.close_code is not None and not goes_on:
            acknowledged = self._port.acknowledged()
            for channel in self._intake.channels if self._intake else ():
                channel.abandon(acknowledged)
        self._port.send(events.Failure(error.code, error.message, error.is_fatal))
        if error.close_code is not None:
            self._state = State.CLOSED
            self._port.close(error.close_code, error.code)


def used_audio_s(session: Session, *, is_lost: bool) -> float:
    """Seconds of audio that are this session's, and of no session that was lost before it or goes on after it.

    Args:
        is_lost: whether another session goes on with this one, from the newest time that its client was sent.
    """
    port = session._port
    return max((port.own_until_s if is_lost else session.now_s) - port.own_from_s, 0.0)


def speakers_found(session: Session, found: SpeakersFound | None) -> list[Effect]:
    """Have the session process the answer to an `EmbedSpeech`; `None` if there is none."""
    port = session._port
    if port.speakers and not session.is_closed:
        if event := port.speakers.answered(found):
            port.send(event)
        port.embed_speech()
        session._answer()
    return port.pop_effects()


def give_up_speakers(session: Session) -> list[Effect]:
    """End a session that has waited for speakers as long as it may. Its client gets a notice if labels are missing."""
    port = session._port
    if port.speakers and not session.is_closed:
        if notice := port.speakers.give_up():
            port.send(notice)
        session._answer()
    return port.pop_effects()


def _speaker_labels(start: commands.Start, teller: SpeakerTeller | None, from_s: float) -> SpeakerLabels | None:
    voices = start.resume.voices if start.resume else ""
    if start.max_speakers is None:
        if voices:
            raise BadStart("resume.voices", "none without speakers", voices)
        return None
    if start.audio.n_transcribed > 1:
        expected = "null with more than one channel, as each channel has a speaker of its own"
        raise BadStart("speakers", expected, {"max": start.max_speakers})
    try:
        memory = teller.open(start.max_speakers, voices) if teller else None
    except ValueError as error:
        raise BadStart("resume.voices", f"the voices of the last utterance ({error})", voices) from error
    if memory is None:
        expected = "null, as this server does not tell speakers apart"
        raise BadStart("speakers", expected, {"max": start.max_speakers})
    return SpeakerLabels(memory, from_s, resumes=start.resumes, voices=voices, is_awaited=start.follows_speakers)


def _ruled_text(start: commands.Start, language: LanguageRequest, model: api.ModelInfo) -> RuledText | None:
    rules = start.text_rules
    _require_english(start, language, model, BadStart)
    return RuledText(rules, is_resumed=start.resume is not None, wants_words=start.words) if rules else None


def _require_english(
    start: commands.Start,
    language: LanguageRequest,
    model: api.ModelInfo,
    error: Callable[[str, str, object], SessionError],
) -> None:
    """Refuse rules that know English words only, where the text may be in another language."""
    is_english = language.named == "en" or not model.is_multilingual or start.task == "translate"
    for name, is_wanted in (("numerals", start.text_rules.numerals), ("profanity", start.text_rules.profanity)):
        if is_wanted and not is_english:
            raise error(name, "left out unless the language is en, as its words are English", is_wanted)


def _final_beams(start: commands.Start, config: SessionConfig, model: api.ModelInfo) -> FinalBeams:
    """How final texts are decoded: with the client's beams, as many of the operator's as have slots, or the usual."""
    if start.beam_size is not None and start.beam_size > model.n_slots:
        raise BadStart("beam_size", f"at most {model.n_slots}, the slots of the engine", start.beam_size)
    beam_size = start.beam_size or config.beam_size
    if beam_size is None:
        return FinalBeams(config.sampling, with_beams(config.sampling, spare_beams(model), model))
    return FinalBeams(with_beams(config.sampling, min(beam_size, model.n_slots), model))


def _with_mode(endpointing: commands.Endpointing, model: api.ModelInfo, config: SessionConfig) -> commands.Endpointing:
    if endpointing.mode is not None:
        return endpointing
    if not (model.adaptive_endpointing and config.speculates):
        return replace(endpointing, mode="vad")
    return replace(endpointing, mode="adaptive", silence_ms=ADAPTIVE_SILENCE_MS, min_silence_ms=ADAPTIVE_MIN_SILENCE_MS)


def _changed_options(options: ChannelOptions, change: commands.Configure, model: api.ModelInfo) -> ChannelOptions:
    start = replace(options.start, **{each.name: getattr(change, each.name) for each in fields(change)})
    language = _language_request(start, model, _bad_option)
    _require_english(start, language, model, _bad_option)
    if start.interim_words and not (start.interim and start.words):
        raise BadMessage("bad_message", "interim_words only with interim and words", start.interim_words)
    n_channels, n_wanted = options.start.audio.n_transcribed, start.audio.n_transcribed
    if n_wanted != n_channels:
        raise BadMessage("bad_message", f"{n_channels} channels, as before", n_wanted)
    start = replace(start, endpointing=_with_mode(start.endpointing, model, options.config))
    return replace(options, start=start, language=language)


def _notices(endpointing: commands.Endpointing, config: SessionConfig) -> tuple[events.Notice, ...]:
    if config.speculates:
        return ()
    needs = "needs speculative finals, which are switched off here"
    messages = []
    if endpointing.mode == "adaptive":
        messages.append(f"endpointing.mode: adaptive {needs}; vad holds instead")
    if endpointing.eager_confidence is not None:
        messages.append(f"endpointing.eager_confidence: {needs}; no pause is reported")
    return tuple(events.Notice("no_effect", message) for message in messages)


def _language_request(
    start: commands.Start, model: api.ModelInfo, error: Callable[[str, str, object], SessionError]
) -> LanguageRequest:
    """What a client leaves open of the language. A model that knows one language needs no detection.

    `error` makes the error for an option, from its name, what was expected and what came.
    """
    known = ", ".join(model.languages) or "none: this model knows one language only"
    named = language_of(start.language, model.languages)
    if named is not None and named not in model.languages:
        raise error("language", f"null or one of the model's languages ({known})", start.language)
    if named is not None and (start.languages or start.locks_language):
        raise error("languages", "none beside a language: they are for the detection", list(start.languages))
    for language in start.languages:
        if language_of(language, model.languages) not in model.languages:
            raise error("languages", f"a list of the model's languages ({known})", language)
    candidates = known_among(start.languages or model.languages, model.languages)
    if named is not None or not model.is_multilingual:
        return LanguageRequest(named=named)
    if len(candidates) == 1:
        return LanguageRequest(named=candidates[0])
    return LanguageRequest(candidates=candidates, locks=start.locks_language)


def _bad_option(name: str, expected: str, got: object) -> BadMessage:
    return BadMessage("bad_message", f"{expected} as {name}", got)
