"""All metrics of the service, in Prometheus' terms; the engine's own counters are read when they are asked for."""

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
LOOP_LAG_PERIOD_S = 0.5


class Metrics:
    """One registry per service, so that several can live in one process."""

    def __init__(self, transcriber: api.Transcriber, shared_folder: str | None = None) -> None:
        """Args:
        shared_folder: where prometheus_client, told so before its import, keeps what all gateways count.
        """
        self.registry = CollectorRegistry()
        self._shown = self.registry
        if shared_folder:
            self._shown = CollectorRegistry()
            MultiProcessCollector(self._shown, shared_folder)  # type: ignore[no-untyped-call]  # it has no types
        self.sessions = Gauge(
            "tutti_sessions_open", "Live sessions now", registry=self.registry, multiprocess_mode="livesum"
        )
        self.sessions_total = Counter("tutti_sessions", "Live sessions opened", registry=self.registry)
        self.refused_total = Counter(
            "tutti_refused", "Sessions and uploads refused", ["reason"], registry=self.registry
        )
        self.closed_total = Counter("tutti_closed", "Live sessions closed", ["code"], registry=self.registry)
        # A series that begins with its first count hides that one from `increase()`.
        for reason in ("overloaded", "draining", "unauthorized"):
            self.refused_total.labels(reason)
        for code in ("client", *map(str, CLOSE_CODES)):
            self.closed_total.labels(code)
        self.webhook_events_total = Counter(
            "tutti_webhook_events", "Events of calls that the webhook is done with", ["outcome"], registry=self.registry
        )
        for outcome in ("delivered", "refused", "expired", "dropped"):
            self.webhook_events_total.labels(outcome)
        self.audio_s_total = Counter("tutti_audio_seconds", "Seconds of audio taken in", registry=self.registry)
        self.events_total = Counter("tutti_events", "Events sent to clients", ["type"], registry=self.registry)
        self.first_text_s = Histogram(
            "tutti_first_text_seconds",
            "From the arrival of an utterance's first sample of speech to its first text",
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.interim_lag_s = Histogram(
            "tutti_interim_lag_seconds",
            "From the arrival of the newest sample an interim has read to its sending",
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.final_latency_s = Histogram(
            "tutti_final_latency_seconds",
            "From the arrival of an utterance's last sample of speech to its final event, endpointing silence included",
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.uncovered_s_total = Counter(
            "tutti_uncovered_seconds", "Seconds of detected speech without text", registry=self.registry
        )
        self.redecodes_total = Counter(
            "tutti_redecodes", "Stretches of detected speech without text, decoded again", registry=self.registry
        )
        self.recovered_s_total = Counter(
            "tutti_recovered_seconds", "Seconds of detected speech that have text thanks to it", registry=self.registry
        )
        self.loop_lag_s = Histogram(
            "tutti_loop_lag_seconds",
            "How late the event loop wakes a task",
            buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
            registry=self.registry,
        )
        self._shown.register(_EngineCollector(transcriber))

    def count_coverage(self, utterance: events.Utterance) -> None:
        """How much of its speech has no text, and what reading it again gave; for live speech and files alike."""
        self.uncovered_s_total.inc(sum(end - start for start, end in utterance.uncovered))
        self.redecodes_total.inc(utterance.n_redecodes)
        self.recovered_s_total.inc(utterance.recovered_s)

    def render(self) -> bytes:
        """The figures of the whole service."""
        return generate_latest(self._shown)

    async def watch_loop(self) -> None:
        """Sample the event loop's lag for ever."""
        while True:
            due = time.monotonic() + LOOP_LAG_PERIOD_S
            await asyncio.sleep(LOOP_LAG_PERIOD_S)
            self.loop_lag_s.observe(max(time.monotonic() - due, 0.0))


class _EngineCollector(Collector):
    """Turns a snapshot of the engine's counters into metric families."""

    def __init__(self, transcriber: api.Transcriber) -> None:
        self._transcriber = transcriber

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        stats = self._transcriber.stats()
        waiting = GaugeMetricFamily("tutti_engine_waiting", "Windows in the queue now", labels=["priority"])
        waiting.add_metric(["final"], stats.waiting_finals)
        waiting.add_metric(["interim"], stats.waiting_interims)
        yield waiting
        yield GaugeMetricFamily("tutti_engine_running", "Sequences being decoded now", value=stats.running)
        yield _histogram("tutti_engine_encode_batch", "Windows per encoder call", stats.encode_batch)
        yield _histogram("tutti_engine_decode_batch", "Sequences per decode step", stats.decode_batch)
        queue = HistogramMetricFamily(
            "tutti_engine_queue_seconds", "Wait of a window for its encoder call", labels=["priority"]
        )
        queue.add_metric(["final"], _buckets(stats.final_queue_s), stats.final_queue_s.total)
        queue.add_metric(["interim"], _buckets(stats.interim_queue_s), stats.interim_queue_s.total)
        yield queue
        yield _histogram("tutti_engine_encode_seconds", "Time of one encoder call", stats.encode_s)
        yield _histogram("tutti_engine_step_seconds", "Time of one decode step", stats.step_s)
        windows = CounterMetricFamily("tutti_engine_windows", "Windows that ended", labels=["how"])
        windows.add_metric(["done"], stats.windows_done)
        windows.add_metric(["superseded"], stats.windows_superseded)
        windows.add_metric(["cancelled"], stats.windows_cancelled)
        yield windows
        yield CounterMetricFamily("tutti_engine_tokens", "Tokens decoded", value=stats.tokens_decoded)
        drafts = CounterMetricFamily("tutti_engine_draft_tokens", "Tokens of drafts", labels=["verdict"])
        drafts.add_metric(["accepted"], stats.tokens_accepted)
        drafts.add_metric(["rejected"], stats.tokens_drafted - stats.tokens_accepted)
        yield drafts
        yield CounterMetricFamily("tutti_engine_audio_seconds", "Seconds of audio encoded", value=stats.audio_s)


def _histogram(name: str, documentation: str, histogram: api.Histogram) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, documentation)
    family.add_metric([], _buckets(histogram), histogram.total)
    return family


def _buckets(histogram: api.Histogram) -> list[tuple[str, float]]:
    cumulative, buckets = 0, []
    for edge, count in zip((*map(str, histogram.edges), "+Inf"), histogram.counts, strict=True):
        cumulative += count
        buckets.append((edge, float(cumulative)))
    return buckets
