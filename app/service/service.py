"""What the routes of one running service share: its settings, engine, metrics, admission and deliveries."""

from dataclasses import replace
from typing import TYPE_CHECKING

from app.delivery.call_subscribers import MAX_SUBSCRIBERS_PER_CALL, Calls
from app.media.decoders import Decoders
from app.service.admission import Admission
from app.service.auth import Access
from app.service.metrics import Metrics
from app.service.settings import Settings
from app.service.shared_state import SharedState
from app.service.strangers import Strangers
from app.session.session import SessionConfig
from app.tracing.tracing import NO_TRACING, Tracing
from engine import api

if TYPE_CHECKING:
    from app.delivery.webhook import Webhook


class Service:
    """One service, or one of its gateways. The application keeps it as `app.state.service`."""

    def __init__(
        self,
        settings: Settings,
        transcriber: api.Transcriber,
        session_config: SessionConfig,
        shared: SharedState,
        decoders: Decoders,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self.settings = settings
        self.shared = shared
        self.transcriber = transcriber
        self.decoders = decoders
        self.metrics = Metrics(transcriber, shared.metrics_folder)
        self.access = Access(settings.keys, shared.key, lambda: self.metrics.refused_total.labels("unauthorized").inc())
        self.admission = Admission(settings, self.metrics, shared.counter, transcriber)
        self.session_config = replace(session_config, extra_interval_s=self.admission.interim_load.extra_s)
        self.strangers = Strangers(settings, self.metrics.strangers)
        self.calls = Calls(settings.max_sessions * MAX_SUBSCRIBERS_PER_CALL)
        self.webhook = self._make_webhook(tracing) if settings.webhook_url else None
        self.started = shared.started

    def _make_webhook(self, tracing: Tracing) -> "Webhook":
        # Imported here because it brings an HTTP client, 5 MB, and few services have a webhook.
        from app.delivery.webhook import Webhook

        return Webhook(
            self.settings.webhook_url,
            self.settings.webhook_secret,
            lambda outcome: self.metrics.webhook_events_total.labels(outcome).inc(),
            trace=tracing.delivery,
        )
