"""All metrics of the service, for Prometheus. The engine's own counters are read when a page is rendered."""

import asyncio
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from app.errors import CLOSE_CODES
from app.session import events
from engine import api

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENCY_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets for what a client waits for, in seconds."""
ENDPOINT_BUCKETS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.015,
    0.02,
    0.03,
    0.04,
    0.06,
    0.08,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
    1.0,
    2.0,
    5.0,
)
"""Upper bounds of the buckets for the time from an endpoint to its final text, in seconds."""
LOOP_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Upper bounds of the buckets for the event loop's lag, in seconds."""
LOOP_LAG_PERIOD_S = 0.5
"""Time between two measurements of the event loop's lag, in seconds."""


class LatencyMetrics:
    """How long a client waits for text, counted from the arrival of its audio, and every task for the event loop."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.first_text_s = Histogram(
            "tutti_first_text_seconds",
            "Time from the arrival of an utterance's first speech sample to the sending of its first text",
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.interim_lag_s = Histogram(
            "tutti_interim_lag_seconds",
            "Time from the arrival of the newest sample that an interim covers to the sending of the interim",
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.final_latency_s = Histogram(
            "tutti_final_latency_seconds",
            "Time from the arrival of an utterance's last speech sample to the sending of its final event, including "
            "the endpointing silence",
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.final_after_endpoint_s = Histogram(
            "tutti_final_after_endpoint_seconds",
            "Time from the end of an utterance, by silence or by a flush, to the sending of its final event",
            buckets=ENDPOINT_BUCKETS,
            registry=registry,
        )
        self.loop_lag_s = Histogram(
            "tutti_loop_lag_seconds",
            "How late the event loop wakes up a sleeping task",
            buckets=LOOP_LAG_BUCKETS,
            registry=registry,
        )


class UtteranceMetrics:
    """How the text of utterances came about: speech without text, re-decodes, speculative finals."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._uncovered_s_total = Counter(
            "tutti_uncovered_seconds", "Seconds of detected speech that got no text", registry=registry
        )
        self._redecodes_total = Counter(
            "tutti_redecodes", "Stretches of speech without text that were decoded again", registry=registry
        )
        self._recovered_s_total = Counter(
            "tutti_recovered_seconds",
            "Seconds of detected speech that got text because they were decoded again",
            registry=registry,
        )
        self._speculative_total = _labelled_counter(
            "tutti_speculative_finals",
            "Pauses that were decoded as if the utterance ended there, by whether the text became final",
            "outcome",
            ("used", "unused"),
            registry,
        )

    def count(self, utterance: events.Utterance) -> None:
        """Count one finished utterance, of live speech or of a file."""
        self._uncovered_s_total.inc(sum(end_s - start_s for start_s, end_s in utterance.uncovered))
        self._redecodes_total.inc(utterance.n_redecodes)
        self._recovered_s_total.inc(utterance.recovered_s)
        self._speculative_total.labels("used").inc(utterance.is_speculative)
        self._speculative_total.labels("unused").inc(utterance.n_speculative - utterance.is_speculative)


class StrangerMetrics:
    """Connections whose clients are not admitted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.n_open = Gauge(
            "tutti_strangers_open",
            "Connections that are open now and not admitted yet",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.refused_total = _labelled_counter(
            "tutti_strangers_refused",
            "Connections that were refused or closed before they were admitted, by reason",
            "reason",
            ("slow", "crowded", "malformed", "foreign"),
            registry,
        )


class OtherServerMetrics:
    """The servers that the service uses: the receiver of the webhook, and Redis."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.webhook_events_total = _labelled_counter(
            "tutti_webhook_events",
            "Call events that left the webhook's queue, by outcome",
            "outcome",
            ("delivered", "refused", "expired", "dropped"),
            registry,
        )
        self.redis_is_away = Gauge(
            "tutti_redis_away",
            "Gateways that cannot reach Redis now",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.redis_losses_total = Counter(
            "tutti_redis_losses", "How often Redis stopped to answer a gateway", registry=registry
        )

    def note_redis(self, is_up: bool) -> None:
        """Note that Redis has stopped to answer, or answers again."""
        self.redis_is_away.set(not is_up)
        self.redis_losses_total.inc(not is_up)


class Metrics:
    """The metrics of one service. Each service has its own registry, so several can live in one process."""

    def __init__(self, transcriber: api.Transcriber, shared_folder: str | None = None) -> None:
        """Register all metrics.

        Args:
            transcriber: the engine whose counters are shown.
            shared_folder: where prometheus_client keeps the counts of all gateways. The environment variable
                `PROMETHEUS_MULTIPROC_DIR` must have named it before prometheus_client was imported.
        """
        self.registry = registry = CollectorRegistry()
        self._rendered = registry
        if shared_folder:
            self._rendered = CollectorRegistry()
            MultiProcessCollector(self._rendered, shared_folder)  # type: ignore[no-untyped-call]  # it has no types
        self.sessions = Gauge(
            "tutti_sessions_open", "Live sessions that are open now", registry=registry, multiprocess_mode="livesum"
        )
        self.sessions_total = Counter("tutti_sessions", "Live sessions opened", registry=registry)
        self.refused_total = _labelled_counter(
            "tutti_refused",
            "Sessions and uploads refused, by reason",
            "reason",
            ("overloaded", "draining", "no_engine", "unauthorized", "key_limit"),
            registry,
        )
        self.strangers = StrangerMetrics(registry)
        self.closed_total = _labelled_counter(
            "tutti_closed",
            "Live sessions closed, by close code; 'client' if the client closed it",
            "code",
            ("client", *map(str, CLOSE_CODES)),
            registry,
        )
        self.others = OtherServerMetrics(registry)
        self.audio_s_total = Counter(
            "tutti_audio_seconds", "Seconds of audio received by live sessions", registry=registry
        )
        self.events_total = Counter("tutti_events", "Events sent to clients, by type", ["type"], registry=registry)
        self.latency = LatencyMetrics(registry)
        self.utterances = UtteranceMetrics(registry)
        self._rendered.register(_EngineCollector(transcriber))

    def render(self) -> bytes:
        """The page that Prometheus scrapes, with the figures of all gateways."""
        return generate_latest(self._rendered)

    async def measure_loop_lag(self) -> None:
        """Measure the event loop's lag until cancelled."""
        while True:
            due = time.monotonic() + LOOP_LAG_PERIOD_S
            await asyncio.sleep(LOOP_LAG_PERIOD_S)
            self.latency.loop_lag_s.observe(max(time.monotonic() - due, 0.0))


def _labelled_counter(
    name: str, documentation: str, label: str, values: tuple[str, ...], registry: CollectorRegistry
) -> Counter:
    """A counter whose series all start at 0. A series that starts at 1 would hide its first event from `increase()`."""
    counter = Counter(name, documentation, [label], registry=registry)
    for value in values:
        counter.labels(value)
    return counter


class _EngineCollector(Collector):
    """Turns a snapshot of the engine's counters into metric families."""

    def __init__(self, transcriber: api.Transcriber) -> None:
        self._transcriber = transcriber

    def describe(self) -> Iterator[Metric]:
        """Nothing: `collect` alone names the families, and needs a running engine."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The engine's counters as they are now."""
        stats = self._transcriber.stats()
        waiting = GaugeMetricFamily("tutti_engine_waiting", "Windows in the engine's queue now", labels=["priority"])
        waiting.add_metric(["final"], stats.waiting_finals)
        waiting.add_metric(["speculative"], stats.waiting_speculative)
        waiting.add_metric(["interim"], stats.waiting_interims)
        yield waiting
        yield GaugeMetricFamily("tutti_engine_running", "Sequences that are being decoded now", value=stats.running)
        yield _histogram("tutti_engine_encode_batch", "Windows in one encoder call", stats.encode_batch)
        yield _histogram("tutti_engine_decode_batch", "Sequences in one decode step", stats.decode_batch)
        queue = HistogramMetricFamily(
            "tutti_engine_queue_seconds", "Time that a window waits for its encoder call", labels=["priority"]
        )
        queue.add_metric(["final"], _buckets(stats.final_queue_s), stats.final_queue_s.total)
        queue.add_metric(["speculative"], _buckets(stats.speculative_queue_s), stats.speculative_queue_s.total)
        queue.add_metric(["interim"], _buckets(stats.interim_queue_s), stats.interim_queue_s.total)
        yield queue
        yield _histogram("tutti_engine_encode_seconds", "Duration of one encoder call", stats.encode_s)
        yield _histogram("tutti_engine_step_seconds", "Duration of one decode step", stats.step_s)
        windows = CounterMetricFamily(
            "tutti_engine_windows", "Windows that left the engine, by outcome", labels=["how"]
        )
        windows.add_metric(["done"], stats.windows_done)
        windows.add_metric(["superseded"], stats.windows_superseded)
        windows.add_metric(["cancelled"], stats.windows_cancelled)
        yield windows
        yield CounterMetricFamily("tutti_engine_tokens", "Tokens decoded", value=stats.tokens_decoded)
        drafts = CounterMetricFamily(
            "tutti_engine_draft_tokens", "Draft tokens verified by speculative decoding, by verdict", labels=["verdict"]
        )
        drafts.add_metric(["accepted"], stats.tokens_accepted)
        drafts.add_metric(["rejected"], stats.tokens_drafted - stats.tokens_accepted)
        yield drafts
        yield CounterMetricFamily("tutti_engine_audio_seconds", "Seconds of audio encoded", value=stats.audio_s)


def _histogram(name: str, documentation: str, histogram: api.Histogram) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, documentation)
    family.add_metric([], _buckets(histogram), histogram.total)
    return family


def _buckets(histogram: api.Histogram) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound, as Prometheus wants them."""
    cumulative, buckets = 0, []
    for edge, count in zip((*map(str, histogram.edges), "+Inf"), histogram.counts, strict=True):
        cumulative += count
        buckets.append((edge, float(cumulative)))
    return buckets
