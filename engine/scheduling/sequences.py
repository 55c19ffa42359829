"""The sequences being decoded: prefill their prompts, step them, judge what they give, decode again or finish them."""

import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import replace

from tutti_server.engine.api import DecodeOptions, EngineEvent, SegmentEvent, is_punctuation
from tutti_server.engine.decoding.beam_search import SampledToken
from tutti_server.engine.decoding.prompt import Prompt, build_prompt
from tutti_server.engine.decoding.repetition import repeated_tokens
from tutti_server.engine.decoding.sampling import Draw
from tutti_server.engine.decoding.temperature_fallback import DecodingAttempt
from tutti_server.engine.decoding.transcript import TokenTranscript, TranscriptInfo
from tutti_server.engine.decoding.word_timing import Alignment
from tutti_server.engine.runner import LaunchedStep, Prefilled, Runner, Transcribed
from tutti_server.engine.scheduling.emitter import EventEmitter
from tutti_server.engine.scheduling.request import AttemptOutput, Request, Translation, TranslationRequest
from tutti_server.engine.scheduling.stats import StatsRecorder

MAX_QUEUED_S = 1.0
"""A window that waited longer than this for the encoder, in seconds, is not translated: the engine is too busy."""

_Owners = dict[int, tuple[Request, DecodingAttempt]]
"""The requests that take part in a launched step, with the attempt whose token it decodes, by slot."""


class RunningSequences:
    """The requests that have a slot. Only the engine's thread may use it, but any thread may ask for its length."""

    def __init__(self, runner: Runner, stats: StatsRecorder, emitter: EventEmitter, n_reserved_slots: int = 0) -> None:
        """Begin without requests. A translation leaves at least `n_reserved_slots` free for finals."""
        self._runner = runner
        self._stats = stats
        self._emitter = emitter
        self._n_reserved_slots = n_reserved_slots
        self._running: dict[int, Request] = {}
        """The requests that have a slot, by slot."""
        self._encoding: set[int] = set()
        """The slots whose windows are being encoded: no step decodes them before `prefill`."""
        self._beams: dict[int, tuple[int, ...]] = {}
        """The slots of the beams of each request, the first of them its own, by that slot."""
        self._in_flight: deque[tuple[LaunchedStep, _Owners]] = deque()
        """Steps that were launched and whose tokens are not collected yet."""
        self._for_next_attempt: dict[int, Request] = {}
        """The requests that start their next decoding attempt, by slot. Empty between two steps."""
        self._to_align: dict[int, tuple[Request, AttemptOutput]] = {}
        """The decoded requests that need the times of their words, by slot. Empty between two steps."""
        self._to_translate: dict[int, Request] = {}
        """The translations that begin with the next step, by slot: after the last events of their windows."""

    def __len__(self) -> int:
        return len(self._running)

    @property
    def requests(self) -> Collection[Request]:
        """The requests that have a slot."""
        return self._running.values()

    @property
    def n_decoding(self) -> int:
        """The number of requests whose windows are encoded: a step decodes their next tokens."""
        return len(self._running) - len(self._encoding)

    @property
    def n_finals(self) -> int:
        """The number of finals that are being decoded, speculative ones included."""
        decoding = (request for slot, request in self._running.items() if slot not in self._encoding)
        return sum(not request.window.is_interim for request in decoding)

    def allocate(self, batch: Iterable[Request]) -> list[int]:
        """Give each request a slot for an encoder call, and return the slots. Its beams get theirs at the same time.

        Where steps are launched ahead, a GPU gets one step more, to compute it while the host prepares the call.
        """
        slots: dict[int, Request] = {}
        for request in batch:
            beams = tuple(self._runner.slots.allocate() for _ in range(request.n_slots))
            slots[beams[0]], self._beams[beams[0]] = request, beams
        self._running |= slots
        self._encoding |= slots.keys()
        if self._in_flight and self._need_step():
            self._launch()
        return list(slots)

    def prefill(self, slots: Iterable[int]) -> None:
        """Prefill the prompts of encoded slots, in one pass; those that were cancelled in the meantime are released."""
        slots = list(slots)
        self._encoding.difference_update(slots)
        self.release_cancelled()
        new = {slot: self._running[slot] for slot in slots if slot in self._running}
        if not new:
            return
        unknown = {slot: request for slot, request in new.items() if request.needs_detection}
        if unknown and self._runner.checkpoint.generation.is_multilingual:
            candidates = [request.window.options.languages for request in unknown.values()]
            detected = self._runner.detect_languages(list(unknown), candidates)
            for request, probabilities in zip(unknown.values(), detected, strict=True):
                request.receive_languages(probabilities)
        self._start_attempts(new)
        self._settle()

    def step(self) -> bool:
        """Decode one token for every running sequence.

        Returns:
            Whether a step was launched. No step is launched if the steps in flight are certain to be the last ones of
            every request; their tokens are then collected.
        """
        self._start_translations()
        if self._in_flight and not self._need_step():
            self.collect()
            return False
        self._launch()
        self.collect(n_left=self._runner.n_ahead)
        return True

    def collect(self, n_left: int = 0) -> None:
        """Collect the tokens of the steps in flight, the oldest first, except of the last `n_left` steps."""
        while len(self._in_flight) > n_left:
            step, owners = self._in_flight.popleft()
            sampled = self._runner.collect(step)
            for slot, (request, attempt) in owners.items():
                # Otherwise the attempt ended while this step was in flight.
                if self._running.get(slot) is request and request.fallback.current is attempt:
                    output = request.output
                    assert output is not None
                    request.n_steps += 1
                    self._accept(slot, request, output, output.search.result if output.search else (sampled[slot],))
            self._settle()

    def forget_steps(self) -> None:
        """Drop the steps in flight. The caller makes sure that no sequence is running."""
        self._in_flight.clear()

    def release_cancelled(self) -> None:
        """Release the slots of cancelled requests. Nothing may be encoded beside the steps meanwhile."""
        for slot, request in list(self._running.items()):
            if request.caller.is_cancelled:
                self._release(slot)
                if request.caller is request:
                    self._stats.cancelled()

    def release_all(self) -> None:
        """Drop all work and release all slots."""
        self._in_flight.clear()
        self._for_next_attempt.clear()
        self._to_align.clear()
        self._to_translate.clear()
        for slot in list(self._running):
            self._release(slot)

    def _start_translations(self) -> None:
        requests, self._to_translate = self._to_translate, {}
        if requests:
            self._start_attempts(requests)
            self._settle()

    def _start_attempts(self, requests: dict[int, Request]) -> None:
        attempts = [request.fallback.current for request in requests.values()]
        prompts = [
            self._build_prompt(request, attempt) for request, attempt in zip(requests.values(), attempts, strict=True)
        ]
        draws = [self._draw(request, self._beams[slot]) for slot, request in requests.items()]
        launched = self._runner.launch_prefill(list(requests), prompts, draws)
        if self._runner.n_ahead and not self._in_flight:
            # The device goes on while the host waits for the first tokens and makes texts of them.
            self._launch()
        prefilled = self._runner.collect_prefill(launched)
        n_accepted = sum(
            len(result.tokens) - 1 for prompt, result in zip(prompts, prefilled, strict=True) if prompt.draft
        )
        self._stats.prefilled(len(requests), sum(len(prompt.draft) for prompt in prompts), n_accepted)
        for (slot, request), draw, prompt, result in zip(requests.items(), draws, prompts, prefilled, strict=True):
            output, request.begun = request.begun, None
            if output is None:
                output = request.output = self._new_output(request, draw, prompt, result)
                for token in request.window.options.prefix:
                    self._publish(request, output, output.transcript.push(token, None))
            output.search = draw.search
            self._accept(slot, request, output, result.tokens)

    def _draw(self, request: Request, slots: tuple[int, ...]) -> Draw:
        """Return how the next tokens of a request's current attempt are sampled."""
        window, attempt = request.window, request.fallback.current
        sampling, search = window.options.sampling, None
        if attempt.searches:
            search = self._runner.search_type(
                sampling,
                eot=self._runner.checkpoint.tokenizer.eot,
                max_tokens=request.max_tokens,
                prefix=window.options.prefix,
                slots=slots,
                begun=request.begun.transcript.sampled if request.begun else (),
            )
        n_attention_samples = len(window.samples) if window.options.attention_times else 0
        return Draw(attempt.temperature, attempt.seed, n_attention_samples, search)

    def _build_prompt(self, request: Request, attempt: DecodingAttempt) -> Prompt:
        options = request.window.options
        if not attempt.has_previous_text:
            options = replace(options, previous_text="", hotwords=())
        if request.begun:
            options = replace(options, prefix=request.begun.transcript.tokens)
        prompt = build_prompt(self._runner.checkpoint, options, request.language)
        return replace(prompt, draft=_usable_draft(request, attempt))

    def _new_output(self, request: Request, draw: Draw, prompt: Prompt, prefilled: Prefilled) -> AttemptOutput:
        info = TranscriptInfo(
            audio_s=request.audio_s,
            language=request.language,
            with_timestamps=request.window.options.timestamps,
            no_speech_prob=prefilled.no_speech_prob,
            with_word_times=request.window.options.word_times,
            temperature=draw.temperature,
            language_probabilities=request.reported_probabilities,
        )
        transcript = TokenTranscript(self._runner.checkpoint.tokenizer, info)
        return AttemptOutput(transcript, prompt.control)

    def _launch(self) -> None:
        step = self._runner.launch()
        owners = {slot: (self._running[slot], self._running[slot].fallback.current) for slot in step.slots}
        self._in_flight.append((step, owners))
        self._stats.launched(len(step.slots))

    def _need_step(self) -> bool:
        """Return whether another step is of use: the steps in flight are not certain to be the last of all requests."""
        return any(
            request.output is not None
            and request.output.transcript.n_tokens + len(self._in_flight) < request.max_tokens
            for request in self._running.values()
        )

    def _accept(self, slot: int, request: Request, output: AttemptOutput, tokens: Iterable[SampledToken]) -> None:
        """Add sampled tokens to the output, and end the attempt where they end it: with one, or in a repetition."""
        transcript, eot = output.transcript, self._runner.checkpoint.tokenizer.eot
        for sampled in tokens:
            if self._must_search(request, sampled):
                request.fallback.search_on()
                request.begun = output
                self._for_next_attempt[slot] = request
                return
            events = transcript.push(sampled.token, sampled.logprob, sampled.attention_peak_s)
            self._publish(request, output, events)
            is_ended = sampled.token == eot
            # Only new text makes a repetition: after a forced prefix that repeats itself the output may still end.
            n_repeated = repeated_tokens(transcript.text_tokens) if sampled.token < eot else 0
            if n_repeated:
                transcript.cut_repetition(n_repeated)
            output.is_truncated = not is_ended and not n_repeated and transcript.n_tokens >= request.max_tokens
            if is_ended or n_repeated or output.is_truncated:
                self._end_attempt(slot, request, output)
                return

    def _must_search(self, request: Request, sampled: SampledToken) -> bool:
        """Return whether a greedy choice is so unlikely that beams decode the text from there."""
        attempt, sure_logprob = request.fallback.current, request.window.options.sampling.sure_logprob
        if attempt.searches or attempt.temperature > 0 or request.n_slots == 1 or sure_logprob is None:
            return False
        text = self._runner.checkpoint.tokenizer.whole_text(sampled.token)
        return sampled.logprob < sure_logprob and text != "" and not is_punctuation(text or "")

    def _end_attempt(self, slot: int, request: Request, output: AttemptOutput) -> None:
        """Decide whether the window is decoded again, aligned or finished."""
        options, transcript = request.window.options, output.transcript
        counting: AttemptOutput | None = output
        if transcript.is_repetitive or request.must_hold_events:
            may_begin_anew = not request.has_segments_out and not options.prefix
            counting = request.fallback.judge(
                transcript.outcome,
                output,
                may_drop_previous_text=may_begin_anew,
                other_language=request.other_language,
            )
        if counting is None:
            self._for_next_attempt[slot] = request
        elif counting.transcript.n_tokens and (options.word_times or _has_unknown_end(counting, options)):
            self._to_align[slot] = (request, counting)
        else:
            self._finish(slot, request, counting)

    def _settle(self) -> None:
        """Start the next attempts of the sequences that ended in this step, and align those that need it."""
        while self._for_next_attempt:
            requests, self._for_next_attempt = self._for_next_attempt, {}
            self._start_attempts(requests)
        ended, self._to_align = self._to_align, {}
        if not ended:
            return
        # One pass gives the times of words, and the end of the speech that a text was cut to.
        transcribed = [
            Transcribed(output.control, output.transcript.tokens, request.window.samples, output.is_cut)
            for request, output in ended.values()
        ]
        alignments = self._runner.align(list(ended), transcribed)
        for (slot, (request, output)), alignment in zip(ended.items(), alignments, strict=True):
            self._finish(slot, request, output, alignment)

    def _finish(self, slot: int, request: Request, output: AttemptOutput, alignment: Alignment | None = None) -> None:
        if request.caller is request:
            self._stats.done()
            output.translation = self._decide_translation(request, output)
        if output.translation is Translation.FOLLOWS:
            self._runner.end_decoding(slot)
            translation = TranslationRequest.after(request, self._runner.checkpoint, time.monotonic())
            self._running[slot] = self._to_translate[slot] = translation
        else:
            self._release(slot)
        self._emitter.finish(request, output, alignment)

    def _decide_translation(self, request: Request, output: AttemptOutput) -> Translation:
        """Decide whether a window whose text is known is translated. No final waits for the slot of a translation."""
        if not request.window.options.translates or request.language == "en" or not output.transcript.text_tokens:
            return Translation.NONE
        is_busy = request.queued_s > MAX_QUEUED_S or self._runner.slots.n_free < self._n_reserved_slots
        return Translation.DROPPED if is_busy else Translation.FOLLOWS

    def _publish(self, request: Request, output: AttemptOutput, events: list[EngineEvent]) -> None:
        """Hand out the events of an attempt, or hold them until the attempt is known to count."""
        if not events or request.caller is not request:
            # A translation is handed out whole.
            return
        if request.must_hold_events:
            output.held_events += events
            return
        request.has_segments_out |= any(isinstance(event, SegmentEvent) for event in events)
        for event in events:
            self._emitter.put(request, event)

    def _release(self, slot: int) -> None:
        for each in self._beams[slot]:
            self._runner.release(each)
        del self._running[slot], self._beams[slot]
        self._encoding.discard(slot)
        self._to_translate.pop(slot, None)


def _usable_draft(request: Request, attempt: DecodingAttempt) -> tuple[int, ...]:
    """Return the draft tokens that can be of use to an attempt.

    Tokens drawn at a temperature cannot be predicted, the bonus of hotwords depends on the tokens before, and a search
    looks at several tokens at every place.
    """
    options = request.window.options
    if attempt.temperature > 0 or options.hotwords or attempt.searches:
        return ()
    return options.draft[: request.max_tokens - len(options.prefix) - 1]


def _has_unknown_end(output: AttemptOutput, options: DecodeOptions) -> bool:
    """Whether it must be found out where a text ends. Whoever limits tokens asks for no more than the text."""
    if output.transcript.is_repetitive or output.is_truncated:
        return output.transcript.is_repetitive or options.max_tokens is None
    return options.latest_end_s is not None and output.transcript.ends_before(options.latest_end_s)
