"""Whether the operator wants traces: OpenTelemetry's own variables say so, and where they go."""

from collections.abc import Mapping

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.settings import is_http_url

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The address of the collector: for traces alone, or for all signals. The first one that is set holds."""
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
"""The one protocol that we speak. Every collector accepts it, at port 4318 unless it was changed."""
EXPORTER = "OTEL_TRACES_EXPORTER"
DISABLED = "OTEL_SDK_DISABLED"


def wants_traces(environ: Mapping[str, str]) -> bool:
    """Whether these variables ask for traces: they name an endpoint, or the exporter `otlp`.

    Raises:
        SettingsError: they ask for a way of sending that we do not have.
    """
    exporter = environ.get(EXPORTER, "")
    if environ.get(DISABLED, "").lower() == "true" or exporter == "none":
        return False
    if not exporter and not _first(ENDPOINTS, environ)[1]:
        return False
    if exporter not in ("", "otlp"):
        raise SettingsError(f"{EXPORTER}: expected otlp or none, got {exporter}")
    name, protocol = _first(PROTOCOLS, environ)
    if protocol not in ("", PROTOCOL):
        raise SettingsError(f"{name}: expected {PROTOCOL}, got {protocol}; collectors accept it at port 4318")
    name, endpoint = _first(ENDPOINTS, environ)
    if endpoint and not is_http_url(endpoint):
        raise SettingsError(f"{name}: expected an address such as http://collector:4318, got {endpoint}")
    return True


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, str]:
    """The first of these variables that is set, and its value; an empty value if none is."""
    return next(((name, environ[name]) for name in names if environ.get(name)), (names[0], ""))
