"""`tutti serve` with a collector: a real process, the small model, and spans over OTLP."""

import re
import signal
from itertools import pairwise

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

import tutti
from tests.app.cli.child import running
from tests.plugins.telemetry.collector import Collector, attributes, collecting
from tests.recordings import TEXTS, read, words

NS_PER_MS = 1_000_000
STAGES = ["queue", "encode", "prefill", "decode"]


def under(collector: Collector, parent: bytes) -> list[Span]:
    """The spans whose parent has this id; that of a root is empty."""
    spans = [span for span in collector.spans if span.parent_span_id == parent]
    return sorted(spans, key=lambda span: (span.start_time_unix_nano, span.end_time_unix_nano))


@pytest.mark.nightly
@pytest.mark.parametrize("gateways", [0, 1])
async def test_a_session_is_one_trace_from_its_socket_to_its_decode_steps(gateways: int) -> None:
    """With the engine in the same process and in another one. The log has the ids of the trace and of the session."""
    with collecting() as collector:
        arguments = ["--port", "0", "--gateways", str(gateways), "--threads", "1"]
        with running(
            *("-m", "tutti_server.app", "serve", *arguments),
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
            OTEL_RESOURCE_ATTRIBUTES="zone=west",
        ) as server:
            address = server.wait_for("captions").split("//")[1].strip().rstrip("/")
            async with tutti.connect(f"ws://{address}", language="en", resume_buffer_s=0) as session:
                await session.send(read("hello").tobytes())
                await session.stop()
                events = [event async for event in session]
            server.signal(signal.SIGTERM)
            status, errors = server.end()
    assert status == 0
    (text,) = [event.text for event in events if isinstance(event, tutti.Utterance)]
    assert words(text)[1:] == words(TEXTS["hello"])[1:]

    (root,) = under(collector, b"")
    known = attributes(root)
    assert root.name == "session" and {span.trace_id for span in collector.spans} == {root.trace_id}
    assert (known["tutti.session"], known["tutti.close_code"]) == (session.started.session_id, "1000")
    assert (collector.resource["service.name"], collector.resource["zone"]) == ("tutti", "west")
    (opened,) = re.findall(r"\[(s_\w+)\] opened for (req_\w+) trace=(\w+)", errors)
    assert opened == (session.started.session_id, known["tutti.request"], root.trace_id.hex())

    (utterance,) = under(collector, root.span_id)
    windows = under(collector, utterance.span_id)
    assert {window.name for window in windows} & {"final", "speculative final"}
    for window in (window for window in windows if attributes(window)["tutti.outcome"] == "done"):
        stages = under(collector, window.span_id)
        assert [stage.name for stage in stages] == STAGES
        assert all(one.end_time_unix_nano == next.start_time_unix_nano for one, next in pairwise(stages))
        # The wall clock may have been adjusted by a little in between.
        assert window.start_time_unix_nano - NS_PER_MS <= stages[0].start_time_unix_nano
        assert stages[-1].end_time_unix_nano <= window.end_time_unix_nano + NS_PER_MS


def test_what_opentelemetry_refuses_when_it_is_imported_stops_the_start() -> None:
    endpoint = "http://collector:4318"
    command = ("-m", "tutti_server.app", "serve")
    with running(*command, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_PROPAGATORS="unknown") as server:
        status, errors = server.end()
    assert status == 1 and errors.startswith("Error: traces: Propagator unknown not found")
