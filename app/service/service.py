"""What the routes of one running service share: its settings, engine, metrics, admission and deliveries."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from tutti_server.app.background import in_background
from tutti_server.app.errors import SettingsError
from tutti_server.app.media.decoder_workers import Decoders
from tutti_server.app.publish.call_subscribers import MAX_SUBSCRIBERS_PER_CALL, Calls
from tutti_server.app.publish.room_follower import RoomConfig
from tutti_server.app.publish.room_hub import Rooms
from tutti_server.app.publish.shared_calls import SharedCalls
from tutti_server.app.service.account_service import NO_ACCOUNTS, AccountService
from tutti_server.app.service.admission import Admission
from tutti_server.app.service.auth import Access
from tutti_server.app.service.client_connections import UnauthenticatedConnections
from tutti_server.app.service.file_keys import FileKeys
from tutti_server.app.service.metrics import Metrics
from tutti_server.app.service.models import Models
from tutti_server.app.service.room_readers import RoomReaders
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import SharedState
from tutti_server.app.service.tracing import Tracing
from tutti_server.app.session.core.options import SessionConfig
from tutti_server.app.sharing.local_store import LocalStore
from tutti_server.app.sharing.store import SharedStore
from tutti_server.app.voices.live_speakers import LiveSpeakers
from tutti_server.engine import api

if TYPE_CHECKING:
    from tutti_server.app.publish.webhook import Webhook
    from tutti_server.app.translation.chat_translator import ChatTranslator
    from tutti_server.app.voices.speaker_model import SpeakerModel

KNOWS_MORE = 0.1
"""How much more alike than two stretches of one speaker a speaker and a known one must be: their voices are means."""
KNOWS_MOST = 0.99
"""The highest similarity that is asked of a known speaker: two recordings of one voice are never quite alike."""


class Service:
    """One service, or one of its gateways. The application keeps it as `app.state.service`."""

    def __init__(
        self,
        settings: Settings,
        transcriber: api.Transcriber,
        session_config: SessionConfig,
        shared: SharedState,
        decoders: Decoders,
        models: Models | None = None,
    ) -> None:
        self.file_keys = FileKeys(
            Path(settings.keys_file) if settings.keys_file else None,
            partial(settings.check_key_limits, shared.n_gateways),
            settings.named_keys,
        )
        self.settings = settings
        self.tracing = Tracing()
        """Follows requests for the operator. A plug-in may put another one here when it starts."""
        self.accounts: AccountService = NO_ACCOUNTS
        """Keys beside those of the settings, what they use, and their jobs: see `use_accounts`."""
        self.shared = shared
        self.transcriber = transcriber
        """The engine of the first model."""
        self.models = models or Models(transcriber)
        self.decoders = decoders
        self.metrics = Metrics(self.models, shared.metrics_folder, shared.metrics_of_all)
        self.store = self._make_store()
        self.access = Access(
            settings.unnamed_keys,
            shared.key,
            lambda reason: self.metrics.refused_total.labels(reason).inc(),
            self.store,
            lambda: self.file_keys.by_key,
        )
        self.admission = Admission(settings, self.metrics, shared.counter, self.models)
        self.session_config = replace(
            session_config,
            extra_interval_s=self.admission.interim_load.extra_s,
            translator=self._make_translator() if settings.translate_url else None,
            speaker_teller=LiveSpeakers(
                lambda: self.speaker_model,
                lambda outcome, n: self.metrics.others.speaker_stretches_total.labels(outcome).inc(n),
            ),
        )
        if settings.speaker_model:
            # A file that is no speaker network stops the start, and not the first client.
            assert self.speaker_model
        self.unauthenticated = UnauthenticatedConnections(settings, self.metrics.unauthenticated, shared.counter)
        n_subscribers = settings.max_sessions * MAX_SUBSCRIBERS_PER_CALL
        self.calls = (
            SharedCalls(n_subscribers, self.store, self.note_unreadable) if settings.redis_url else Calls(n_subscribers)
        )
        self.webhook = self._make_webhook() if settings.webhook_url else None

    def use_accounts(self, accounts: AccountService) -> None:
        """Accept the keys of a plug-in, count what they use, and take in its jobs. Called before the service starts.

        Raises:
            SettingsError: another plug-in has accounts.
        """
        if self.accounts is not NO_ACCOUNTS:
            got = f"{type(self.accounts).__qualname__} and {type(accounts).__qualname__}"
            raise SettingsError(f"plug-ins: expected one with accounts, got {got}")
        self.accounts = accounts
        self.access.use(accounts)

    @property
    def is_known_everywhere(self) -> bool:
        """Whether all gateways know what is in the store."""
        return bool(self.settings.redis_url) or self.shared.n_gateways == 1

    @property
    def others_stop(self) -> bool:
        """Whether the calls and rooms that are followed here may be at gateways that stop with this one."""
        is_one_of_several = bool(self.settings.redis_url) and self.shared.n_gateways > 1
        return is_one_of_several and not self.shared.counter.outlives_gateway

    def note_unreadable(self) -> None:
        """Count a value of the shared store that could not be read."""
        self.metrics.others.redis_unreadable_total.inc()

    @cached_property
    def rooms(self) -> Rooms:
        """The rooms in which sessions are published."""
        limits = self.settings
        config = RoomConfig(gone_s=limits.room_gone_s, keep_s=limits.room_keep_s, max_chars=limits.room_history_chars)
        return Rooms(self.store, config, self.note_unreadable)

    @cached_property
    def room_readers(self) -> RoomReaders:
        """Admits the readers of rooms."""
        return RoomReaders(self.shared.counter, self.settings.max_room_readers, self.shared.n_gateways)

    @property
    def has_rooms(self) -> bool:
        """Whether sessions may be published in rooms: every gateway must know all of them."""
        return self.settings.max_room_readers > 0 and self.is_known_everywhere

    @cached_property
    def speaker_model(self) -> "SpeakerModel | None":
        """What tells speakers apart; `None` if this installation has no network for it. Loaded when first asked for."""
        # Imported here because few services are asked for it.
        from tutti_server.app.voices.speaker_clustering import SpeakerThresholds
        from tutti_server.app.voices.speaker_model import load, load_onnx

        if not (path := self.settings.speaker_model):
            return load()
        joins = self.settings.speaker_joins
        return load_onnx(Path(path), SpeakerThresholds(joins=joins, knows=min(joins + KNOWS_MORE, KNOWS_MOST)))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Use other servers while the context is open: Redis, the webhook's receiver, and the one that translates."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.models.running())
            await stack.enter_async_context(self.store.running())
            await stack.enter_async_context(self.file_keys.running())
            await stack.enter_async_context(self.accounts.running())
            await stack.enter_async_context(self.access.limits.running())
            await stack.enter_async_context(self.access.withdrawals.running())
            await stack.enter_async_context(self.calls.running())
            await stack.enter_async_context(self.rooms.running())
            if self.webhook is not None:
                await stack.enter_async_context(self.webhook.running())
            if self.session_config.translator is not None:
                await stack.enter_async_context(self.session_config.translator.running())
            await stack.enter_async_context(in_background(self.admission.watch()))
            yield

    def _make_store(self) -> SharedStore:
        if not self.settings.redis_url:
            return LocalStore()
        # Imported here because Redis' client is an extra.
        from tutti_server.app.sharing.redis_store import RedisStore

        return RedisStore(self.settings.redis_url, self.metrics.others.note_redis, self.note_unreadable)

    def _make_translator(self) -> "ChatTranslator":
        # Imported here because it brings an HTTP client, as the webhook does.
        from tutti_server.app.translation.chat_endpoint import ChatEndpoint
        from tutti_server.app.translation.chat_translator import ChatTranslator

        settings = self.settings
        endpoint = ChatEndpoint(
            settings.translate_url,
            settings.translate_model,
            settings.translate_key,
            settings.translate_requests,
            # An endpoint that hangs is asked once more.
            attempt_timeout_s=settings.translate_timeout_s / 2,
        )
        return ChatTranslator(
            endpoint,
            settings.translation_languages,
            settings.translate_timeout_s,
            lambda outcome: self.metrics.others.translations_total.labels(outcome).inc(),
        )

    def _make_webhook(self) -> "Webhook":
        # Imported here because it brings an HTTP client, 5 MB, and few services have a webhook.
        from tutti_server.app.publish.webhook import Webhook

        return Webhook(
            self.settings.webhook_url,
            self.settings.webhook_secret,
            lambda outcome: self.metrics.others.webhook_events_total.labels(outcome).inc(),
            # Not the method itself: a plug-in puts other tracing here when it starts.
            trace=lambda call_sid, created_s: self.tracing.delivery(call_sid, created_s),  # noqa: PLW0108
        )
