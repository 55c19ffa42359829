"""The plug-in of traces. Only where the operator wants them is anything of OpenTelemetry imported."""

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tutti_server.app.errors import SettingsError
from tutti_server.app.server.plugins import Plugin
from tutti_server.app.service.settings import PluginSettings, Settings
from tutti_server.plugins.telemetry.environment import wants_traces

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from tutti_server.app.service.service import Service
    from tutti_server.plugins.telemetry.open_telemetry import OpenTelemetry

EXPORTER_PACKAGE = "opentelemetry.exporter.otlp.proto.http"
"""The package of the extra otel that needs all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings(PluginSettings):
    """No settings: OpenTelemetry's own variables say whether the operator wants traces, and where they go."""

    def check(self, settings: Settings) -> None:
        """Check OpenTelemetry's variables, before any process starts.

        Raises:
            SettingsError: they ask for traces that cannot be made.
        """
        if check_traces(os.environ):
            make_tracing().shut_down()


class Telemetry(Plugin):
    """Follows sessions, uploads and deliveries of the webhook for the operator."""

    name = "telemetry"
    settings = TelemetrySettings

    def __init__(self, exporter: "SpanExporter | None" = None) -> None:
        """Make the plug-in. By default spans go where OpenTelemetry's variables say, if they do."""
        self._exporter = exporter

    @asynccontextmanager
    async def running(self, service: "Service") -> AsyncIterator[None]:
        """See `Plugin.running`. Log lines that are made for a request then name its trace."""
        if self._exporter is None and not check_traces(os.environ):
            yield
            return
        tracing = service.tracing = make_tracing(self._exporter)
        if self._exporter is None:
            from tutti_server.plugins.telemetry.log_ids import TraceIds

            for handler in logging.getLogger().handlers:
                handler.addFilter(TraceIds())
        try:
            yield
        finally:
            await tracing.close()


def check_traces(environ: Mapping[str, str]) -> bool:
    """Whether these variables ask for traces, which then can be made.

    Raises:
        SettingsError: they cannot.
    """
    if not wants_traces(environ):
        return False
    if not _is_installed():
        advice = "install it with pip install 'tutti-asr[otel]', or set OTEL_SDK_DISABLED=true"
        raise SettingsError(f"traces: expected the package {EXPORTER_PACKAGE}, which is not installed; {advice}")
    return True


def make_tracing(exporter: "SpanExporter | None" = None) -> "OpenTelemetry":
    """Start to send spans; see `OpenTelemetry`.

    Raises:
        SettingsError: OpenTelemetry cannot use its variables.
    """
    try:
        # It reads some of them when it is imported.
        from tutti_server.plugins.telemetry.open_telemetry import OpenTelemetry

        return OpenTelemetry(exporter)
    except ValueError as error:
        raise SettingsError(f"traces: {error}") from error


def _is_installed() -> bool:
    try:
        return find_spec(EXPORTER_PACKAGE) is not None
    except ModuleNotFoundError:
        return False


plugin = Telemetry()
