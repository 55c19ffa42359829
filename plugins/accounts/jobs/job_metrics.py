"""Metrics of jobs: how many wait and for how long, and how they and their callbacks end."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge


class JobMetrics:
    """The metrics of the queue of jobs. All gateways see the same queue, so any of them shows it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        newest = partial(Gauge, registry=registry, multiprocess_mode="livemostrecent")
        self.n_queued = newest("tutti_jobs_queued", "Jobs that wait now")
        self.n_running = newest("tutti_jobs_running", "Jobs that are worked on now")
        self.oldest_s = newest("tutti_jobs_oldest_seconds", "How long the oldest job that waits has been there")
        self.ended_total = Counter(
            "tutti_jobs_ended", "Jobs that have ended, by outcome", ["outcome"], registry=registry
        )
        self.callbacks_total = Counter(
            "tutti_job_callbacks", "Reports of jobs that have ended, by outcome", ["outcome"], registry=registry
        )
        for outcome in ("done", "failed"):
            self.ended_total.labels(outcome)
        for outcome in ("delivered", "refused", "expired"):
            self.callbacks_total.labels(outcome)
