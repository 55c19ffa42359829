"""What the routes of one running service share: its settings, engine, metrics, admission and deliveries."""

import hmac
import time
from typing import Any

from app.delivery.call_subscribers import MAX_SUBSCRIBERS_PER_CALL, Calls
from app.delivery.webhook import Webhook
from app.service import client_secrets
from app.service.admission import Admission
from app.service.client_secrets import ClientSecret
from app.service.gateway_counts import SharedState
from app.service.metrics import Metrics
from app.service.settings import Settings
from app.session.session import SessionConfig
from engine import api


class Service:
    """One service, or one of its gateways. The application keeps it as `app.state.service`."""

    def __init__(
        self, settings: Settings, transcriber: api.Transcriber, session_config: SessionConfig, shared: SharedState
    ) -> None:
        self.settings = settings
        self.shared = shared
        self.session_config = session_config
        self.transcriber = transcriber
        self.metrics = Metrics(transcriber, shared.metrics_folder)
        self.admission = Admission(settings, self.metrics, shared.counter)
        self.calls = Calls(settings.max_sessions * MAX_SUBSCRIBERS_PER_CALL)
        self.webhook = (
            Webhook(
                settings.webhook_url,
                settings.webhook_secret,
                lambda outcome: self.metrics.webhook_events_total.labels(outcome).inc(),
            )
            if settings.webhook_url
            else None
        )
        self.started = shared.started

    def is_allowed(self, key: str | None) -> bool:
        """Whether this key, or none, may use the service."""
        keys = self.settings.keys
        # Every key is compared, so that the time taken tells nothing about which one was close.
        matches = [hmac.compare_digest(known.encode(), (key or "").encode()) for known in keys]
        return not keys or any(matches)

    def sign_client_secret(self, key: str | None, expires_at: int, session: dict[str, Any]) -> ClientSecret:
        """A secret for live sessions in place of `key`, which is allowed; raises like `client_secrets.sign`."""
        return client_secrets.sign(key if key and self.settings.keys else self.shared.key, expires_at, session)

    def client_secret(self, value: str | None) -> ClientSecret | None:
        """What a client brought as a key, if it is a secret that opens live sessions now."""
        return client_secrets.read(value or "", self.settings.keys or (self.shared.key,), time.time())

    def is_allowed_live(self, key: str | None) -> bool:
        """Whether this key, this client secret, or neither, opens live sessions."""
        return self.is_allowed(key) or self.client_secret(key) is not None
