"""Traces with OpenTelemetry's SDK, which sends them in a thread of its own. Needs the extra otel."""

import asyncio
import logging
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from os import getpid
from socket import gethostname
from typing import Any

from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, StatusCode, use_span
from opentelemetry.util.types import AttributeValue
from starlette.datastructures import Headers

from tutti_server.app.publish.webhook_trace import DeliveryTrace
from tutti_server.app.service.tracing import Attribute, Trace, Tracing
from tutti_server.app.version import VERSION
from tutti_server.plugins.telemetry.session_spans import NS_PER_S, SessionSpans

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
"""How long a stopping server may take to send its last spans, in seconds."""


class OpenTelemetry(Tracing):
    """A `Tracing` that sends spans to a collector."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        """Start to send spans, by default to the collector that OpenTelemetry's variables name."""
        ours: Mapping[str, AttributeValue] = {
            SERVICE_NAME: "tutti",
            "service.version": VERSION,
            "host.name": gethostname(),
            "process.pid": getpid(),
        }
        # The operator's variables OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word.
        resource = Resource.create(ours).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("tutti", VERSION)

    def session(
        self, scope: MutableMapping[str, Any], request: str, session: str, model: str
    ) -> AbstractContextManager[Trace | None]:
        """See `Tracing.session`."""
        return self._follow("session", scope, {"tutti.request": request, "tutti.session": session}, model)

    def upload(self, scope: MutableMapping[str, Any], request: str, model: str) -> AbstractContextManager[Trace | None]:
        """See `Tracing.upload`."""
        return self._follow("upload", scope, {"tutti.request": request}, model)

    @contextmanager
    def delivery(self, call_sid: str, created_s: float) -> Iterator[DeliveryTrace]:
        """See `Tracing.delivery`."""
        span = self._tracer.start_span(
            "webhook", kind=SpanKind.CLIENT, attributes={"tutti.call": call_sid}, start_time=round(created_s * NS_PER_S)
        )
        with use_span(span, end_on_exit=True, record_exception=False):
            yield _FollowedDelivery(span)

    async def close(self) -> None:
        """Send what is left, for a limited time."""
        # Not one of the loop's own threads, which the end of the process would wait for.
        loop, is_closed = asyncio.get_running_loop(), asyncio.Event()

        def close() -> None:
            self.shut_down()
            if not loop.is_closed():
                loop.call_soon_threadsafe(is_closed.set)

        threading.Thread(target=close, name="tutti-traces", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await is_closed.wait()
        except TimeoutError:
            logger.warning("the last spans could not be sent within %g s", CLOSE_TIMEOUT_S)

    def shut_down(self) -> None:
        """Send what is left. This may block for as long as the collector does not answer."""
        self._provider.shutdown()

    @contextmanager
    def _follow(
        self, name: str, scope: MutableMapping[str, Any], attributes: dict[str, Attribute], model: str
    ) -> Iterator[Trace | None]:
        """A request as the current span of everything that is done in the context."""
        span = self._tracer.start_span(
            name,
            propagate.extract(Headers(scope=scope)),
            SpanKind.SERVER,
            {**attributes, "http.route": _route(scope), "tutti.model": model},
        )
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            if not span.is_recording():
                yield None
                return
            trace = SessionSpans(self._tracer, span)
            try:
                yield trace
            except BaseException as error:
                # Not its message, which may repeat what the client sent.
                span.set_status(StatusCode.ERROR, getattr(error, "code", None) or type(error).__name__)
                raise
            finally:
                trace.end()


class _FollowedDelivery(DeliveryTrace):
    def __init__(self, span: Span) -> None:
        self._span = span
        self._n_attempts = 0
        headers: dict[str, str] = {}
        propagate.inject(headers)
        self.headers = headers

    def attempted(self, answer: int | str) -> None:
        """Note an attempt. Of an error only its type: its message may hold the receiver's address."""
        self._n_attempts += 1
        result: Attribute = answer if isinstance(answer, int) else answer.partition(":")[0]
        name = "http.response.status_code" if isinstance(answer, int) else "error.type"
        self._span.add_event("attempt", {name: result})

    def ended(self, outcome: str) -> None:
        self._span.set_attributes({"tutti.outcome": outcome, "tutti.attempts": self._n_attempts})
        if outcome != "delivered":
            self._span.set_status(StatusCode.ERROR, outcome)


def _route(scope: MutableMapping[str, Any]) -> str:
    """The path of a request with the names of its parameters in place of their values, one of which may be a key."""
    path: str = scope["path"]
    for name, value in scope.get("path_params", {}).items():
        path = path.replace(f"/{value}", f"/{{{name}}}")
    return path
