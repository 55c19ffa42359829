"""All metrics of the service, for Prometheus. The engine's own counters are read when a page is rendered."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from tutti_server.app.errors import CLOSE_CODES
from tutti_server.app.service.process_metrics import ProcessMetrics
from tutti_server.app.service.shared_state import GatherMetrics
from tutti_server.app.session.messages import events
from tutti_server.engine import api

# Prometheus takes no notice of when a series began, which doubles the page.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENCY_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets for what a client waits for, in seconds."""
ENDPOINT_BUCKETS = (
    0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0,
)  # fmt: skip
"""Upper bounds of the buckets for the time from an endpoint to its final text, in seconds."""
LOOP_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Upper bounds of the buckets for the event loop's lag, in seconds."""
LOOP_LAG_PERIOD_S = 0.5


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
        counts = utterance.counts
        self._uncovered_s_total.inc(sum(end_s - start_s for start_s, end_s in utterance.uncovered))
        self._redecodes_total.inc(counts.n_redecodes)
        self._recovered_s_total.inc(counts.recovered_s)
        self._speculative_total.labels("used").inc(counts.is_speculative)
        self._speculative_total.labels("unused").inc(counts.n_speculative - counts.is_speculative)


class UnauthenticatedMetrics:
    """Connections whose clients are not admitted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.n_open = _gauge("tutti_strangers_open", "Connections that are open now and not admitted yet", registry)
        self.refused_total = _labelled_counter(
            "tutti_strangers_refused",
            "Connections that were refused or closed before they were admitted, by reason",
            "reason",
            ("slow", "crowded", "malformed", "foreign"),
            registry,
        )


class OtherServerMetrics:
    """The servers that the service uses: the receiver of the webhook, the one that translates, and Redis."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.webhook_events_total = _labelled_counter(
            "tutti_webhook_events",
            "Call events that left the webhook's queue, by outcome",
            "outcome",
            ("delivered", "refused", "expired", "dropped"),
            registry,
        )
        self.translations_total = _labelled_counter(
            "tutti_translations",
            "Texts that were given to the chat endpoint, by outcome",
            "outcome",
            ("translated", "failed"),
            registry,
        )
        self.speaker_stretches_total = _labelled_counter(
            "tutti_speaker_stretches",
            "Stretches of live speech for the speaker network, by outcome",
            "outcome",
            ("embedded", "failed", "dropped"),
            registry,
        )
        self.redis_is_away = _gauge("tutti_redis_away", "Gateways that cannot reach Redis now", registry)
        self.redis_losses_total = Counter(
            "tutti_redis_losses", "How often Redis stopped to answer a gateway", registry=registry
        )
        self.redis_unreadable_total = Counter(
            "tutti_redis_unreadable", "Values of Redis that could not be read, and were skipped", registry=registry
        )

    def note_redis(self, is_up: bool) -> None:
        """Note that Redis has stopped to answer, or answers again."""
        self.redis_is_away.set(not is_up)
        self.redis_losses_total.inc(not is_up)


class RoomMetrics:
    """Counts rooms and their readers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.rooms = _gauge("tutti_rooms", "Rooms in which a session speaks now", registry)
        self.readers = _gauge("tutti_room_readers", "Readers of rooms now", registry)
        self.sends_total = Counter(
            "tutti_room_sends", "How often readers of rooms were sent something new", registry=registry
        )
        self.refused_total = _labelled_counter(
            "tutti_room_refused",
            "Readers of rooms that were refused, by reason",
            "reason",
            ("readers", "slow"),
            registry,
        )


class Engines(Protocol):
    """The engines of a service as a whole: an `api.Transcriber`, or several models."""

    @property
    def is_alive(self) -> bool:
        """Whether clients who name no model are answered."""
        ...

    def stats(self) -> api.EngineStats:
        """The counters of all engines."""
        ...


class Metrics:
    """The metrics of one service. Each service has its own registry, so several can live in one process."""

    def __init__(
        self,
        engines: Engines,
        shared_folder: str | None = None,
        metrics_of_all: GatherMetrics | None = None,
    ) -> None:
        """Register all metrics.

        Args:
            shared_folder: where prometheus_client keeps the counts of all gateways. The environment variable
                `PROMETHEUS_MULTIPROC_DIR` must have named it before prometheus_client was imported.
            metrics_of_all: returns the metrics of all gateways where they are on several machines.
        """
        self.registry = registry = CollectorRegistry()
        # What is shown once, whichever gateway shows it.
        self._shown = CollectorRegistry() if shared_folder or metrics_of_all else registry
        self._metrics_of_all = metrics_of_all
        if shared_folder:
            MultiProcessCollector(self._shown, shared_folder)  # type: ignore[no-untyped-call]  # it has no types
        self.sessions_open = _gauge("tutti_sessions_open", "Live sessions that are open now", registry)
        self.sessions_total = Counter("tutti_sessions", "Live sessions opened", registry=registry)
        self.refused_total = _labelled_counter(
            "tutti_refused",
            "Sessions and uploads refused, by reason",
            "reason",
            ("overloaded", "draining", "no_engine", "unauthorized", "key_limit", "scope"),
            registry,
        )
        self.unauthenticated = UnauthenticatedMetrics(registry)
        self.closed_total = _labelled_counter(
            "tutti_closed",
            "Live sessions closed, by close code; 'client' if the client closed it",
            "code",
            ("client", *map(str, CLOSE_CODES)),
            registry,
        )
        self.others = OtherServerMetrics(registry)
        self.rooms = RoomMetrics(registry)
        self.audio_s_total = Counter(
            "tutti_audio_seconds", "Seconds of audio received by live sessions", registry=registry
        )
        self.events_total = Counter("tutti_events", "Events sent to clients, by type", ["type"], registry=registry)
        self.latency = LatencyMetrics(registry)
        self.utterances = UtteranceMetrics(registry)
        self._shown.register(_EngineCollector(engines))
        (self._shown if shared_folder else registry).register(ProcessMetrics(shared_folder))

    def show_session_load(self, session_load: Callable[[], float]) -> None:
        """Show how full the service is, which is asked when a page is rendered: see `Admission.session_load`."""
        self._shown.register(_SessionLoadCollector(session_load))

    def snapshot(self) -> list[Metric]:
        """The figures of this gateway now, for the pages of the others."""
        return list(self.registry.collect())

    async def page(self) -> bytes:
        """The page that Prometheus scrapes, with the figures of all gateways.

        Where they are on several machines, each series has a label `gateway`.
        """
        if self._metrics_of_all is None:
            return self.render()
        registry = CollectorRegistry()
        registry.register(_GatewaysCollector(await self._metrics_of_all()))
        return generate_latest(registry) + self.render()

    def render(self) -> bytes:
        """The page of gateways that share a folder, or the part of it that any gateway knows of all."""
        return generate_latest(self._shown)

    async def measure_loop_lag(self) -> None:
        """Measure the event loop's lag until cancelled."""
        while True:
            due = time.monotonic() + LOOP_LAG_PERIOD_S
            await asyncio.sleep(LOOP_LAG_PERIOD_S)
            self.latency.loop_lag_s.observe(max(time.monotonic() - due, 0.0))


def _gauge(name: str, documentation: str, registry: CollectorRegistry) -> Gauge:
    """A gauge that is added up over the gateways that run."""
    return Gauge(name, documentation, registry=registry, multiprocess_mode="livesum")


def _labelled_counter(
    name: str, documentation: str, label: str, values: tuple[str, ...], registry: CollectorRegistry
) -> Counter:
    """A counter whose series all start at 0. A series that starts at 1 would hide its first event from `increase()`."""
    counter = Counter(name, documentation, [label], registry=registry)
    for value in values:
        counter.labels(value)
    return counter


class _GatewaysCollector(Collector):
    """Collects the metrics of several gateways, told apart by a label."""

    def __init__(self, metrics: Mapping[str, Sequence[Metric]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for gateway, of_one in self._metrics.items():
            for metric in of_one:
                family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                for sample in metric.samples:
                    family.samples.append(sample._replace(labels={"gateway": gateway, **sample.labels}))
        yield from families.values()


class _SessionLoadCollector(Collector):
    """Shows how full the whole service is, as the gateway that renders the page knows it."""

    def __init__(self, session_load: Callable[[], float]) -> None:
        self._session_load = session_load

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "tutti_session_load_ratio",
            "Live sessions that are open now, divided by the most that would be accepted",
            value=self._session_load(),
        )


class _EngineCollector(Collector):
    """Turns a snapshot of the engine's counters into metric families. Several engines have a label each."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    def collect(self) -> Iterator[Metric]:
        total = self._engines.stats()
        families = _EngineFamilies(["engine"] if total.engines else [])
        for name, stats in total.engines.items():
            families.add([name], stats)
        for name in total.unknown:
            families.add_down(name)
        if not total.engines:
            families.add([], total)
        yield from families.all()


class _EngineFamilies:
    """The metric families of engines. Each engine adds its values, with its labels before those of the family."""

    def __init__(self, labels: list[str]) -> None:
        gauge = partial(GaugeMetricFamily, labels=labels)
        histogram = partial(HistogramMetricFamily, labels=labels)
        counter = partial(CounterMetricFamily, labels=labels)
        self._plain: dict[str, GaugeMetricFamily | CounterMetricFamily] = {
            "n_engines": gauge("tutti_engine_up", "Whether the engine accepts windows now: 1 or 0"),
            "work_waiting_s": gauge(
                "tutti_engine_work_seconds",
                "Encoder and decode time that all windows which wait or are being decoded still need, in seconds",
            ),
            "running": gauge("tutti_engine_running", "Sequences that are being decoded now"),
            "tokens_decoded": counter("tutti_engine_tokens", "Tokens decoded"),
            "audio_s": counter("tutti_engine_audio_seconds", "Seconds of audio encoded"),
        }
        """Families that show one field of an engine's counters each, by the name of the field."""
        self._histograms: dict[str, HistogramMetricFamily] = {
            "encode_batch": histogram("tutti_engine_encode_batch", "Windows in one encoder call"),
            "decode_batch": histogram("tutti_engine_decode_batch", "Sequences in one decode step"),
            "encode_s": histogram("tutti_engine_encode_seconds", "Duration of one encoder call"),
            "step_s": histogram("tutti_engine_step_seconds", "Duration of one decode step"),
        }
        self._gpu: dict[str, GaugeMetricFamily] = {
            "memory_total_bytes": gauge("tutti_engine_gpu_memory_total_bytes", "Memory of the engine's GPU"),
            "memory_reserved_bytes": gauge(
                "tutti_engine_gpu_memory_reserved_bytes", "Memory of the GPU that the engine's process has taken"
            ),
            "memory_used_bytes": gauge(
                "tutti_engine_gpu_memory_used_bytes", "Memory of the GPU that all programs have taken"
            ),
            "utilization": gauge(
                "tutti_engine_gpu_utilization_ratio", "Share of the last moment in which the GPU was busy, 0 to 1"
            ),
            "power_w": gauge("tutti_engine_gpu_power_watts", "Power that the GPU draws"),
            "temperature_c": gauge("tutti_engine_gpu_temperature_celsius", "Temperature of the GPU"),
        }
        self._waiting = GaugeMetricFamily(
            "tutti_engine_waiting", "Windows in the engine's queue now", labels=[*labels, "priority"]
        )
        self._queue = HistogramMetricFamily(
            "tutti_engine_queue_seconds",
            "Time that a window waits for its encoder call",
            labels=[*labels, "priority"],
        )
        self._windows = CounterMetricFamily(
            "tutti_engine_windows", "Windows that left the engine, by outcome", labels=[*labels, "how"]
        )
        self._drafts = CounterMetricFamily(
            "tutti_engine_draft_tokens",
            "Draft tokens verified by speculative decoding, by verdict",
            labels=[*labels, "verdict"],
        )

    def add(self, labels: list[str], stats: api.EngineStats) -> None:
        for name, family in self._plain.items():
            family.add_metric(labels, getattr(stats, name))
        for name, histogram in self._histograms.items():
            histogram.add_metric(labels, *_buckets(getattr(stats, name)))
        for name, gauge in self._gpu.items():
            if (value := getattr(stats.gpu, name, None)) is not None:
                gauge.add_metric(labels, value)
        for priority, n_waiting, queued in (
            ("final", stats.waiting_finals, stats.final_queue_s),
            ("speculative", stats.waiting_speculative, stats.speculative_queue_s),
            ("file", stats.waiting_files, stats.file_queue_s),
            ("interim", stats.waiting_interims, stats.interim_queue_s),
        ):
            self._waiting.add_metric([*labels, priority], n_waiting)
            self._queue.add_metric([*labels, priority], *_buckets(queued))
        self._windows.add_metric([*labels, "done"], stats.windows_done)
        self._windows.add_metric([*labels, "superseded"], stats.windows_superseded)
        self._windows.add_metric([*labels, "cancelled"], stats.windows_cancelled)
        self._drafts.add_metric([*labels, "accepted"], stats.tokens_accepted)
        self._drafts.add_metric([*labels, "rejected"], stats.tokens_drafted - stats.tokens_accepted)

    def add_down(self, name: str) -> None:
        """Add an engine that is down. Counters of 0 would look like another engine in its place."""
        self._plain["n_engines"].add_metric([name], 0)

    def all(self) -> Iterator[Metric]:
        """Return all families. Those of GPUs are left out where they have no value."""
        yield from (*self._plain.values(), *self._histograms.values())
        yield from (self._waiting, self._queue, self._windows, self._drafts)
        yield from (each for each in self._gpu.values() if each.samples)


def _buckets(histogram: api.Histogram) -> tuple[list[tuple[str, float]], float]:
    cumulative, buckets = 0, []
    for edge, count in zip((*map(str, histogram.edges), "+Inf"), histogram.counts, strict=True):
        cumulative += count
        buckets.append((edge, float(cumulative)))
    return buckets, histogram.total
