"""The spans of one session: its utterances, their windows, and the stages of a window.

The engine knows nothing of spans. It reports with a window's last event how long each stage took, in this process or in
another one, and the stages are placed before the moment at which that event came.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from opentelemetry.context import Context
from opentelemetry.trace import Span, StatusCode, Tracer, set_span_in_context

from tutti_server.app.service.tracing import Attribute
from tutti_server.app.session.core.effects import Submit
from tutti_server.app.session.engine_driver import Submission
from tutti_server.app.session.messages import events
from tutti_server.engine import api
from tutti_server.engine.errors import EngineError

NS_PER_S = 1_000_000_000
WINDOW_NAMES = {
    api.Priority.FINAL: "final",
    api.Priority.FILE: "final",
    api.Priority.SPECULATIVE: "speculative final",
    api.Priority.INTERIM: "interim",
}
"""The name of a window's span, by its priority."""


class SessionSpans:
    """The trace of one session that is recorded: a `Trace`."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        """Follow a session; `span` is its own, which the caller ends."""
        self._tracer = tracer
        self._span = span
        self._session = set_span_in_context(span)
        self._utterances: dict[int, tuple[Span, Context]] = {}
        """Utterances that are not final, with their spans as the parents of others, by number."""

    def note(self, **attributes: Attribute) -> None:
        """See `Trace.note`."""
        for name, value in attributes.items():
            self._span.set_attribute(f"tutti.{name}", value)

    def session_event(self, event: events.Event) -> None:
        """Begin or end the span of an utterance; see `SessionTrace.session_event`."""
        match event:
            case events.SpeechStarted():
                self._begin_utterance(event)
            case events.Endpoint():
                self._utterances[event.utterance][0].add_event("endpoint")
            case events.Utterance():
                self._end_utterance(event)
            case events.Failure() if event.is_fatal:
                self._span.set_status(StatusCode.ERROR, event.code)

    def _begin_utterance(self, event: events.SpeechStarted) -> None:
        span = self._tracer.start_span(
            "utterance",
            self._session,
            attributes={
                "tutti.utterance": event.utterance,
                "tutti.channel": event.channel,
                "tutti.start_s": event.at_s,
            },
        )
        self._utterances[event.utterance] = span, set_span_in_context(span)

    def _end_utterance(self, event: events.Utterance) -> None:
        span, _ = self._utterances.pop(event.utterance)
        span.set_attributes(
            {
                "tutti.end_s": event.end_s,
                "tutti.uncovered_s": round(sum(end_s - start_s for start_s, end_s in event.uncovered), 3),
                "tutti.redecodes": event.counts.n_redecodes,
                "tutti.is_speculative": event.counts.is_speculative,
                "tutti.is_complete": event.is_complete,
            }
        )
        span.end()

    def end(self) -> None:
        """End the spans of utterances that have no end, because the client left."""
        for span, _ in self._utterances.values():
            span.end()
        self._utterances.clear()

    @asynccontextmanager
    async def window(self, submit: Submit, submission: Submission) -> AsyncIterator[AsyncIterator[api.EngineEvent]]:
        """Follow a window; see `SessionTrace.window`."""
        window = submit.window
        _, parent = self._utterances.get(submit.utterance, (None, self._session))
        span = self._tracer.start_span(
            "re-decode" if submit.is_redecode else WINDOW_NAMES[window.priority],
            parent,
            attributes={
                "tutti.audio_s": round(len(window.samples) / api.SAMPLE_RATE, 3),
                "tutti.channel": window.channel,
                "tutti.priority": window.priority.name.lower(),
                "tutti.outcome": "cancelled",
            },
        )
        try:
            async with submission as engine_events:
                yield _FollowedEvents(self._tracer, span, engine_events)
        except EngineError as error:
            span.set_attribute("tutti.outcome", "failed")
            span.set_status(StatusCode.ERROR, error.code)
            raise
        finally:
            span.end()


class _FollowedEvents:
    """The events of a window, noted in its span as they pass. Cancelling `anext` loses nothing."""

    def __init__(self, tracer: Tracer, span: Span, engine_events: AsyncIterator[api.EngineEvent]) -> None:
        self._tracer = tracer
        self._span = span
        self._events = engine_events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> api.EngineEvent:
        event = await anext(self._events)
        match event:
            case api.StartedEvent():
                self._span.set_attribute("tutti.batch_size", event.batch_size)
                if event.engine:
                    self._span.set_attribute("tutti.engine", event.engine)
            case api.DoneEvent():
                self._span.set_attributes({"tutti.outcome": "done", "tutti.decode_steps": event.n_steps})
                if event.timing:
                    self._add_stages(event.timing)
            case api.SupersededEvent():
                self._span.set_attribute("tutti.outcome", "superseded")
        return event

    def _add_stages(self, timing: api.WindowTiming) -> None:
        """Add the spans of the stages. The last one ends now."""
        parent = set_span_in_context(self._span)
        stages = (
            ("queue", timing.queued_s),
            ("encode", timing.encode_s),
            ("prefill", timing.prefill_s),
            ("decode", timing.decode_s),
        )
        start_ns = time.time_ns() - sum(round(stage_s * NS_PER_S) for _, stage_s in stages)
        for name, stage_s in stages:
            end_ns = start_ns + round(stage_s * NS_PER_S)
            self._tracer.start_span(name, parent, start_time=start_ns).end(end_ns)
            start_ns = end_ns
