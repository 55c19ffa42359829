"""A collector: receives spans over OTLP as OpenTelemetry's own collector does, and keeps them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """The spans that have been received, and the address that receives them."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.spans: list[Span] = []
        self.resource: dict[str, str] = {}
        """The attributes of the server."""

    def receive(self, body: bytes) -> None:
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource = attributes(of_resource.resource)
            self.spans += [span for of_scope in of_resource.scope_spans for span in of_scope.spans]


def attributes(of: Span | Resource) -> dict[str, str]:
    """The attributes with text."""
    return {pair.key: pair.value.string_value for pair in of.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a loopback port while the context is open."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name that BaseHTTPRequestHandler calls
            collector.receive(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
