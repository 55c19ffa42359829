"""`tutti serve` with a collector: a real process, the small model, and spans over OTLP."""

import re
import signal
from itertools import pairwise

import pytest

import tutti
from tests.app.cli.child import running
from tests.plugins.telemetry.collector import Collector, ReceivedSpan, collecting
from tests.recordings import TEXTS, read, words

NS_PER_MS = 1_000_000
STAGES = ["queue", "encode", "prefill", "decode"]


def under(collector: Collector, parent: ReceivedSpan) -> list[ReceivedSpan]:
    spans = [span for span in collector.spans if span.parent == parent.id]
    return sorted(spans, key=lambda span: (span.start_ns, span.end_ns))


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

    (root,) = collector.named("session")
    assert {span.trace for span in collector.spans} == {root.trace}
    assert root.attributes["tutti.session"] == session.started.session_id
    assert root.attributes["tutti.close_code"] == "1000"
    assert root.resource["service.name"] == "tutti" and root.resource["zone"] == "west"
    (opened,) = re.findall(r"\[(s_\w+)\] opened for (req_\w+) trace=(\w+)", errors)
    assert opened == (session.started.session_id, root.attributes["tutti.request"], root.trace)

    (utterance,) = under(collector, root)
    windows = under(collector, utterance)
    assert {window.name for window in windows} & {"final", "speculative final"}
    for window in (window for window in windows if window.attributes["tutti.outcome"] == "done"):
        stages = under(collector, window)
        assert [stage.name for stage in stages] == STAGES
        assert all(one.end_ns == next.start_ns for one, next in pairwise(stages))
        # The wall clock may have been adjusted by a little in between.
        assert window.start_ns - NS_PER_MS <= stages[0].start_ns and stages[-1].end_ns <= window.end_ns + NS_PER_MS


def test_what_opentelemetry_refuses_when_it_is_imported_stops_the_start() -> None:
    endpoint = "http://collector:4318"
    command = ("-m", "tutti_server.app", "serve")
    with running(*command, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_PROPAGATORS="unknown") as server:
        status, errors = server.end()
    assert status == 1 and errors.startswith("Error: traces: Propagator unknown not found")
