"""What is in the trace of a session, an upload and a delivery, beside the fake engine."""

import asyncio
import logging
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tests.app.conftest import Running, Serve, receive_all
from tests.app.dialects.openai.test_files_endpoint import TALK, wav
from tests.app.dialects.twilio.test_endpoint import call
from tests.app.live.test_connection import START, TURN, send, session
from tests.fakes import FakeTranscriber, pcm, said
from tutti_server.app.publish.webhook import Webhook
from tutti_server.app.server.plugins import Plugin, installed_plugins
from tutti_server.engine.api import Priority
from tutti_server.engine.errors import EngineFailed
from tutti_server.plugins.telemetry.log_ids import TraceIds
from tutti_server.plugins.telemetry.open_telemetry import OpenTelemetry
from tutti_server.plugins.telemetry.plugin import Telemetry
from tutti_server.plugins.telemetry.session_spans import WINDOW_NAMES

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
"""Ids of the client's own trace, and of the span that it is in."""
STAGES = ["queue", "encode", "prefill", "decode"]


class Spans(InMemorySpanExporter):
    """The spans that were sent. They arrive when the service is closed."""

    def named(self, *names: str) -> list[ReadableSpan]:
        return [span for span in self.get_finished_spans() if span.name in names]

    def under(self, parent: ReadableSpan) -> list[ReadableSpan]:
        return [span for span in self.get_finished_spans() if span.parent and span.parent.span_id == id_of(parent)]

    def text(self) -> str:
        """Everything that was sent, as JSON."""
        return "\n".join(str(span.to_json()) for span in self.get_finished_spans())


def followed(spans: Spans) -> list[Plugin]:
    """The plug-ins of a server whose spans are sent here."""
    return [*installed_plugins(), Telemetry(spans)]


def id_of(span: ReadableSpan) -> int:
    assert span.context
    return int(span.context.span_id)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.fixture
def spans() -> Spans:
    return Spans()


async def stop(server: Running) -> None:
    """Drain the server, which sends its spans."""
    server.server.stop()
    await server.task


async def talk(server: Running, start: dict[str, Any] = START, traceparent: str = "") -> list[dict[str, Any]]:
    """Have a session to its end, then stop the server. Returns what the client has received."""
    headers = {"traceparent": traceparent} if traceparent else {}
    async with session(server.stream, start, additional_headers=headers) as socket:
        await socket.send(pcm(TURN))
        await send(socket, {"type": "stop"})
        received = await receive_all(socket)
    await stop(server)
    return received


async def test_a_session_is_one_connected_trace(serve: Serve, spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    """From the client's own trace to the decode steps, without a word of the text; the log names the same ids."""
    caplog.set_level(logging.INFO)
    server = await serve(plugins=followed(spans))
    await talk(server, traceparent=f"00-{TRACE}-{SPAN}-01")

    (root,) = spans.named("session")
    assert root.parent and f"{root.parent.span_id:016x}" == SPAN
    assert {f"{span.context.trace_id:032x}" for span in spans.get_finished_spans() if span.context} == {TRACE}
    known = attributes(root)
    assert (known["tutti.model"], known["http.route"]) == ("fake", "/v1/stream")
    assert (known["tutti.close_code"], known["tutti.close_reason"]) == ("1000", "done")
    assert known["tutti.audio_s"] == pytest.approx(1.82)
    assert f"[{known['tutti.session']}] opened for {known['tutti.request']}" in caplog.text

    (utterance,) = spans.under(root)
    assert utterance.name == "utterance" and attributes(utterance)["tutti.is_complete"]
    assert [event.name for event in utterance.events] == ["endpoint"]
    windows = spans.under(utterance)
    assert {span.name for span in windows} == {"interim", "final"}
    for window in windows:
        assert attributes(window)["tutti.outcome"] == "done"
        assert attributes(window)["tutti.batch_size"] == 1
        assert attributes(window)["tutti.decode_steps"] > 0
        stages = spans.under(window)
        assert [span.name for span in stages] == STAGES
        lengths_ns = [span.end_time - span.start_time for span in stages if span.end_time and span.start_time]
        assert lengths_ns == [4_000_000, 3_000_000, 2_000_000, 1_000_000]
    assert not any(f"w{number}" in spans.text() for number in (1, 2, 3, 4))


async def test_a_trace_that_is_not_sampled_costs_nothing(serve: Serve, spans: Spans) -> None:
    """The client's trace is not recorded, so this part of it is not either."""
    server = await serve(plugins=followed(spans))
    received = await talk(server, traceparent=f"00-{TRACE}-{SPAN}-00")
    assert [event["text"] for event in received if event["type"] == "utterance"] == [said([1, 2, 3, 4])]
    assert spans.get_finished_spans() == ()


async def test_speech_that_is_decoded_again_is_seen(serve: Serve, spans: Spans) -> None:
    server = await serve(FakeTranscriber(lost=range(4)), plugins=followed(spans))
    await talk(server, {**START, "interim": False})
    (utterance,) = spans.named("utterance")
    assert {span.name for span in spans.under(utterance)} == {"final", "re-decode"}
    assert attributes(utterance)["tutti.redecodes"] == 1


async def test_a_window_that_fails_and_its_session_are_errors(serve: Serve, spans: Spans) -> None:
    server = await serve(FakeTranscriber(error=EngineFailed("the engine died")), plugins=followed(spans))
    async with session(server.stream, {**START, "interim": False}) as socket:
        await socket.send(pcm(TURN))
        await receive_all(socket)
    await stop(server)
    (root,), (window,) = spans.named("session"), spans.named("final")
    assert attributes(window)["tutti.outcome"] == "failed"
    for span in (root, window):
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "engine_failed")
    assert attributes(root)["tutti.close_code"] == "1011"


async def test_a_client_that_leaves_ends_all_spans(serve: Serve, spans: Spans) -> None:
    transcriber = FakeTranscriber(holds=True)
    server = await serve(transcriber, plugins=followed(spans))
    async with session(server.stream, {**START, "interim": False}) as socket:
        await socket.send(pcm(TURN))
        await transcriber.opened.wait()
        socket.transport.abort()
    await stop(server)
    (root,), (utterance,), (window,) = spans.named("session"), spans.named("utterance"), spans.named("final")
    assert attributes(root)["tutti.close_code"] == "client"
    assert attributes(window)["tutti.outcome"] == "cancelled"
    assert spans.under(root) == [utterance]


async def test_a_key_in_the_path_is_in_no_span(serve: Serve, spans: Spans) -> None:
    server = await serve(plugins=followed(spans), api_keys="secret-key")
    async with call(server.address, "/secret-key") as socket:
        await socket.send('{"event":"stop"}')
        await receive_all(socket)
    await stop(server)
    (root,) = spans.named("session")
    assert attributes(root)["http.route"] == "/v1/twilio/{token}"
    assert "secret-key" not in spans.text()


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/listen"])
@pytest.mark.default
async def test_an_upload_is_a_trace_with_its_windows(serve: Serve, spans: Spans, path: str) -> None:
    """Its id is the request's, which the answer has."""
    server = await serve(plugins=followed(spans))
    audio = wav(TALK)
    body: dict[str, Any] = {"content": audio} if path == "/v1/listen" else {"files": {"file": ("a.wav", audio)}}
    answer = await server.post(path, **body)
    assert answer.status_code == 200
    await stop(server)
    (root,) = spans.named("upload")
    assert root.parent is None
    assert attributes(root)["tutti.request"] == answer.headers["x-request-id"]
    assert attributes(root)["http.route"] == path
    utterances = spans.under(root)
    assert [span.name for span in utterances] == ["utterance"] * 2
    assert all([window.name for window in spans.under(each)] == ["final"] for each in utterances)


@pytest.mark.default
async def test_an_upload_that_is_no_audio_is_an_error(serve: Serve, spans: Spans) -> None:
    server = await serve(plugins=followed(spans))
    answer = await server.post("/v1/audio/transcriptions", files={"file": ("a.wav", b"no audio")})
    assert answer.status_code == 400
    await stop(server)
    (root,) = spans.named("upload")
    assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, "invalid_file")


async def test_a_delivery_is_a_span_and_names_its_trace_to_the_receiver(spans: Spans) -> None:
    """Each attempt is an event of it."""
    answers, requests = [503, 204], []

    async def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(answers.pop(0))

    async def sleep(_: float) -> None:
        pass

    tracing = OpenTelemetry(spans)
    webhook = Webhook(
        "https://receiver.example",
        "secret",
        lambda _: None,
        transport=httpx.MockTransport(answer),
        sleep=sleep,
        trace=tracing.delivery,
    )
    async with webhook.running():
        delivery = webhook.open("CA1", "MZ1")
        delivery.push({"type": "segment", "text": "w1"})
        delivery.close()
    await tracing.close()
    (span,) = spans.named("webhook")
    assert span.context
    parents = {request.headers["traceparent"].rpartition("-")[0] for request in requests}
    assert parents == {f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}"}
    assert attributes(span) == {"tutti.call": "CA1", "tutti.outcome": "delivered", "tutti.attempts": 2}
    assert [dict(event.attributes or {}) for event in span.events] == [
        {"http.response.status_code": 503},
        {"http.response.status_code": 204},
    ]
    assert "w1" not in spans.text()


async def test_log_lines_name_the_trace(serve: Serve, spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    """Lines of other work do not."""
    caplog.set_level(logging.INFO)
    caplog.handler.addFilter(TraceIds())
    server = await serve(plugins=followed(spans))
    await talk(server, traceparent=f"00-{TRACE}-{SPAN}-01")
    traces = {record.getMessage().partition("] ")[2][:6]: vars(record)["trace"] for record in caplog.records}
    assert traces["opened"] == traces["closed"] == f" trace={TRACE}"
    logging.getLogger("tutti_server.app").info("[none] outside")
    assert vars(caplog.records[-1])["trace"] == ""


async def test_a_collector_that_is_away_does_not_hold_up_the_end(
    spans: Spans, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spans are lost, and the log says so."""
    monkeypatch.setattr("tutti_server.plugins.telemetry.open_telemetry.CLOSE_TIMEOUT_S", 0.01)
    released = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Stuck(Spans):
        def export(self, spans: Any) -> Any:
            asyncio.run_coroutine_threadsafe(released.wait(), loop).result()
            return super().export(spans)

    tracing = OpenTelemetry(Stuck())
    with tracing.upload({"type": "http", "path": "/", "headers": []}, "req_1", "fake"):
        pass
    await tracing.close()
    assert "the last spans could not be sent" in caplog.text
    released.set()


def test_windows_of_every_priority_have_a_name() -> None:
    """A priority without one would end the sessions that are traced."""
    assert set(WINDOW_NAMES) == set(Priority)
