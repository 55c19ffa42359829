"""Which variables of OpenTelemetry ask for traces, and which stop the start."""

import pytest

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.settings import Settings
from tutti_server.plugins.telemetry import plugin as start
from tutti_server.plugins.telemetry.environment import wants_traces
from tutti_server.plugins.telemetry.plugin import TelemetrySettings

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://collector/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, False),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_SERVICE_NAME": "captions"}, False),
    ],
)
def test_an_endpoint_asks_for_traces(environ: dict[str, str], wanted: bool) -> None:
    """Unless another variable of OpenTelemetry switches them off."""
    assert wants_traces(environ) is wanted


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "OTEL_TRACES_EXPORTER: expected otlp or none, got console"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "expected an address such as http://collector:4318"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://[::1:4318"}, "expected an address such as http://collector:4318"),
        ({**ENDPOINT, "OTEL_BSP_MAX_QUEUE_SIZE": "10"}, "traces: max_export_batch_size must be"),
    ],
)
def test_what_cannot_be_used_stops_the_start(
    environ: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=message):
        TelemetrySettings().check(Settings())


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "EXPORTER_PACKAGE", "opentelemetry_is_not_here.exporter")
    with pytest.raises(SettingsError, match=r"pip install 'tutti-asr\[otel\]', or set OTEL_SDK_DISABLED=true"):
        start.check_traces(ENDPOINT)
    assert not start.check_traces({})
