"""Starts traces where the operator wants them. Only then is anything of OpenTelemetry imported."""

import logging
from collections.abc import Mapping
from importlib.util import find_spec

from app.errors import SettingsError
from app.tracing.environment import wants_traces
from app.tracing.tracing import NO_TRACING, Tracing

EXPORTER_PACKAGE = "opentelemetry.exporter.otlp.proto.http"
"""The package of the extra otel that needs all others."""


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


def start_tracing(environ: Mapping[str, str]) -> Tracing:
    """Start to follow requests if these variables ask for it. Log lines that are made for one then name its trace.

    Raises:
        SettingsError: the variables cannot be used, or the extra otel is not installed.
    """
    if not check_traces(environ):
        return NO_TRACING
    try:
        from app.tracing.log_ids import TraceIds
        from app.tracing.open_telemetry import OpenTelemetry

        tracing = OpenTelemetry()
    except ValueError as error:
        raise SettingsError(f"traces: {error}") from error
    for handler in logging.getLogger().handlers:
        handler.addFilter(TraceIds())
    return tracing


def _is_installed() -> bool:
    try:
        return find_spec(EXPORTER_PACKAGE) is not None
    except ModuleNotFoundError:
        return False
